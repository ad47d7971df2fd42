"""Look up time zones in this machine's database."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def is_known_zone(name: str) -> bool:
    """Return whether the time zone database has this name, which may be any string.

    Examples
    --------
    >>> is_known_zone("Asia/Tokyo"), is_known_zone("UTC+8"), is_known_zone("../../etc/passwd"), is_known_zone("")
    (True, False, False, False)
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def known_zone(name: str) -> str:
    """Return a time zone name, or UTC if the time zone database does not have it.

    Examples
    --------
    >>> known_zone("Asia/Tokyo"), known_zone("UTC+8")
    ('Asia/Tokyo', 'UTC')
    """
    return name if is_known_zone(name) else "UTC"
