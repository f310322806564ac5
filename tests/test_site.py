"""The documentation as a site: every page once and in the navigation, built without a warning, its links lead somewhere."""

import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = runpy.run_path(str(ROOT / "docs/conf.py"))
NAMED = [page for part in CONFIG["NAVIGATION"].values() for page in part]


class Links(HTMLParser):
    """Links of a page, and the places in it that links may lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.places |= {of[name] for name in ("id", "name") if name in of}
        if tag == "a" and "href" in of:
            self.links.append(of["href"])


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
