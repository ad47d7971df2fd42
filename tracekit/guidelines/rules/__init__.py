"""The guidelines, one module each with an object named `GUIDELINE`; modules that begin with _ are shared parts."""

from __future__ import annotations
