"""The time zone of a trace, as far as this machine knows it."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["known_zone"]


def known_zone(timezone: str) -> str:
    """Return a time zone by its name, or UTC where the database of zones does not have it.

    Examples
    --------
    >>> known_zone("Asia/Tokyo"), known_zone("UTC+8")
    ('Asia/Tokyo', 'UTC')
    """
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return timezone
