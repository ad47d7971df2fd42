"""The guidelines by subject; each module lists its guidelines in MEMBERS."""

from __future__ import annotations
