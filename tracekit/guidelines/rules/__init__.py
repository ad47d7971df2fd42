"""The guidelines by what they are about; each module has its own in MEMBERS."""

from __future__ import annotations
