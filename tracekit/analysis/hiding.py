"""Keep names out of the pages of an analysis with pseudonyms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.anonymous import read_salt
from tracekit.errors import UsageError
from tracekit.outputs import real_path

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.settings import AnalysisSettings

__all__ = ["HIDDEN_SOURCE", "salt_of"]

HIDDEN_SOURCE = "logs"
"""Name of the source when its real name is hidden."""

_SOURCES = ("listed", "observed")


def salt_of(settings: AnalysisSettings, out: Path) -> tuple[bytes | None, str | None]:
    """Return the salt of the pseudonyms, and a sentence for the user; None if names stay.

    Parameters
    ----------
    settings : AnalysisSettings
        Settings of the analysis.
    out : Path
        Folder of the report, which must not contain the salt.

    Raises
    ------
    UsageError
        The salt is invalid, or a file that names machines or tenants is also given.
    """
    if not settings.anonymize:
        if settings.salt_file is not None:
            raise UsageError("works only with --anonymize", where="--salt-file", hint="add --anonymize")
        return None, None
    if settings.twin is not None:
        raise UsageError(
            "the twin contains cluster names, but --anonymize replaces them",
            where="--twin",
            hint="leave it out; analyze makes one",
        )
    if settings.capacity not in _SOURCES:
        raise UsageError(
            "the file contains node names, but --anonymize replaces them",
            where="--capacity",
            hint="use listed or observed",
        )
    if settings.salt_file is not None and real_path(settings.salt_file).is_relative_to(real_path(out)):
        raise UsageError(
            "lies in the output folder, which you are about to share",
            where=settings.salt_file,
            hint="keep it elsewhere",
        )
    return read_salt(settings.salt_file)
