"""Count the words on each part of a page that can be read without opening anything."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["words_by_part"]

_VOID = {"meta", "br", "input", "link", "img"}
_UNREAD = {"script", "style", "head", "svg", "noscript"}


def words_by_part(page: str) -> dict[str, int]:
    """Return the number of words that each part of a report shows at first, by the part's id.

    The content of a closed fold is not counted, except its summary. Content that is hidden or only printed is not
    counted either.
    """
    return {part: len(" ".join(found).split()) for part, found in _Parts(page).found.items()}


class _Parts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._open: list[tuple[str, bool]] = []
        """Each open element, and whether its content is read."""
        self._part = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        has = dict(attrs)
        names = (has.get("class") or "").split()
        if "tab" in names:
            self._part = has["id"] or ""
            self.found[self._part] = []
        unread = tag in _UNREAD or "hidden" in has or "paper" in names
        above = self._open[-1] if self._open else ("", True)
        # A fold's summary is read, but the content that follows is not.
        outer = self._read(-2) if above[0] == "details" and tag == "summary" else above[1]
        own = outer and not unread and not (tag == "details" and "open" not in has)
        self._open.append((tag, own))
        self.handle_data(" ")

    def _read(self, place: int) -> bool:
        return self._open[place][1] if len(self._open) >= -place else True

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        inline = data == " "
        if self._part and (inline or (self._open and self._open[-1][1])):
            self.found[self._part].append(data)
