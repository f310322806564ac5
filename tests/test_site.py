"""The documentation as a site: every page once and in the navigation, built without a warning, its links lead somewhere."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = runpy.run_path(str(ROOT / "docs/conf.py"))
NAMED = [page for part in CONFIG["NAVIGATION"].values() for page in part]
MADE = {"genindex.html", "search.html"}  # of Sphinx


class Links(HTMLParser):
    """What a page links to and loads, and the places in it that links may lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.places |= {of[name] for name in ("id", "name") if name in of}
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        if tag == "link" and of.get("rel") in {"stylesheet", "preload", "icon"}:
            self.loaded.append(of["href"])
        if tag in {"script", "img", "iframe"} and "src" in of:
            self.loaded.append(of["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", out]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {
        path: Links(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts
    }


def test_every_page_is_in_the_navigation_once() -> None:
    files = [path for pattern in ("*.md", "docs/*.md", "docs/*.ipynb") for path in ROOT.glob(pattern)]
    assert len(NAMED) == len(set(NAMED))
    assert {path.relative_to(ROOT).with_suffix("").as_posix() for path in files} <= {CONFIG["root_doc"], *NAMED}
    assert all(any((ROOT / f"{page}{suffix}").exists() for suffix in CONFIG["source_suffix"]) for page in NAMED)


@pytest.mark.slow
def test_there_is_a_page_of_each_file_and_of_nothing_else(site: Path, pages: dict[Path, Links]) -> None:
    assert {path.relative_to(site).as_posix() for path in pages} - MADE == {f"{page}.html" for page in ("README", *NAMED)}


@pytest.mark.slow
def test_a_notebook_is_a_page_of_its_cells(site: Path) -> None:
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    html = (site / "docs/notebook.html").read_text(encoding="utf-8")
    shown = [unescape(re.sub("<[^>]+>", "", block)) for block in re.findall(r"<pre>(.*?)</pre>", html, re.DOTALL)]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [one.strip() for one in shown] == [one.strip() for one in code]
    lines = [line for cell in cells if cell["cell_type"] == "markdown" for line in "".join(cell["source"]).splitlines()]
    titles = [line.lstrip("# ") for line in lines if line.startswith("#")]
    assert len(titles) > 3
    assert all(title in unescape(html) for title in titles)


@pytest.mark.slow
def test_links_lead_to_a_page_and_a_place_in_it(site: Path, pages: dict[Path, Links]) -> None:
    wrong = []
    for path, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].places if target in pages else None
            if not target.is_file() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


@pytest.mark.slow
def test_the_first_page_leads_to_every_page(site: Path, pages: dict[Path, Links]) -> None:
    linked = {(site / unquote(urlsplit(link).path)).resolve() for link in pages[site / "README.html"].links}
    assert {site / f"{page}.html" for page in NAMED} <= linked


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Links]) -> None:
    for path, found in pages.items():
        for address in found.loaded:
            parts = urlsplit(address)
            assert parts.scheme + parts.netloc == "", f"{path}: {address}"
            assert (path.parent / unquote(parts.path)).is_file(), f"{path}: {address}"
