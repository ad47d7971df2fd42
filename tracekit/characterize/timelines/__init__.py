"""The timelines, one module each with an object named `TIMELINE`."""

from __future__ import annotations
