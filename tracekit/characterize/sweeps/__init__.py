"""One module a sweep; each has an object named SWEEP."""

from __future__ import annotations
