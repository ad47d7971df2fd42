"""One module a source format; each holds one instance called FORMAT."""

from __future__ import annotations
