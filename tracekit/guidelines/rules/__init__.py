"""The guidelines by subject. Each module lists its guidelines in MEMBERS."""

from __future__ import annotations
