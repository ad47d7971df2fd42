"""The site is built without a warning, its links lead somewhere, and its pages ask nothing of the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.examples import ROOT, pages

if TYPE_CHECKING:
    from collections.abc import Iterator


class Page(HTMLParser):
    """What a page of the site links to, what it loads, and where links to it may lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(found["href"])
        self.loads += [found[name] for name in ("src", "srcset", "poster", "data") if name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Page]:
    """Return the pages of the site by their path; the page for wrong addresses has absolute links."""
    found = {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}
    del found["404.html"]
    return found


def test_every_page_is_built(built: dict[str, Page]) -> None:
    sources = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in pages()}
    assert sources == set(built)


def test_every_link_inside_the_site_leads_to_a_page_and_an_anchor(site: Path, built: dict[str, Page]) -> None:
    followed = 0
    for name, page in built.items():
        for link, where, anchor in _inside(name, page.links, site):
            assert where.is_file(), f"{name} links to {link}"
            if where.suffix == ".html":
                followed += 1
                anchors = built[where.relative_to(site).as_posix()].anchors
                assert anchor in anchors, f"{name} links to {link}, which has no such anchor"
    assert followed > 1000


def test_everything_that_a_page_loads_is_part_of_the_site(site: Path, built: dict[str, Page]) -> None:
    loaded = set()
    for name, page in built.items():
        assert [part for part in page.loads if _is_elsewhere(part)] == [], name
        loaded |= {where for _, where, _ in _inside(name, page.loads, site)}
    assert [path for path in loaded if not path.is_file()] == []
    assert {path.suffix for path in loaded} >= {".css", ".js", ".png"}


@pytest.mark.thorough
def test_no_style_sheet_asks_the_network(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        found = re.findall(r"(?:@import|url\()\s*['\"]?([^'\")\s]*)", sheet.read_text(encoding="utf-8"))
        assert [part for part in found if _is_elsewhere(part)] == [], sheet.name


def test_every_page_that_a_message_or_a_file_names_is_there() -> None:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "tracekit").rglob("*.py")]
    named = {name for file in files for name in re.findall(r"(?<![\w/])docs/[\w/-]+\.\w+", file.read_text("utf-8"))}
    # These two are files of other projects.
    named -= {"docs/input-workload.rst", "docs/documentation/Input/Workload.md"}
    assert len(named) >= 6
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def _is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc) and urlsplit(address).scheme != "data"


def _inside(page: str, addresses: list[str], site: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the addresses that lead into the site: as written, the file, and the anchor."""
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        where = site / page if not parts.path else (site / page).parent / unquote(parts.path)
        where = Path(os.path.normpath(where))
        yield address, where / "index.html" if where.is_dir() else where, unquote(parts.fragment)
