"""Source formats: each module defines one instance called FORMAT."""

from __future__ import annotations
