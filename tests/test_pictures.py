"""The pictures of the documentation: there, small, made by docs/pictures.py, shown with words for who does not see them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
SHOWN = {
    (page.parent / path).resolve(): words
    for page in PAGES
    for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
}
MOST_BYTES = 150_000
SVG = "{http://www.w3.org/2000/svg}"


def test_every_picture_is_shown_made_by_the_script_and_small() -> None:
    there = set(IMAGES.iterdir())
    assert there == SHOWN.keys()
    script = (ROOT / "docs/pictures.py").read_text(encoding="utf-8")
    assert {path.name for path in there} == set(re.findall(r'IMAGES / "([^"]+)"', script))
    assert {path.name: path.stat().st_size for path in there if path.stat().st_size >= MOST_BYTES} == {}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_it_has_words(path: Path) -> None:
    assert len(SHOWN[path].split()) >= 5


def test_the_readme_s_first_screen_shows_the_terminal_and_the_page() -> None:
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:12])
    assert re.findall(r"\]\(docs/images/([^)]+)\)", first) == ["terminal.svg", "report.png"]


def test_the_terminal_shows_what_a_run_ends_with() -> None:
    text = (IMAGES / "terminal.svg").read_text(encoding="utf-8")
    words = " ".join("".join(one.itertext()) for one in ElementTree.fromstring(text).iter(f"{SVG}text")).replace("\xa0", " ")
    for said in ("$ dmqr run configs/quickstart.yaml", "176 distinct", "nDCG@10", "original alone", "report.html"):
        assert said in words
    assert not re.search(r"@font-face|url\(.?https?:|/tmp/|/home/", text)


def test_the_page_is_as_wide_as_a_screen() -> None:
    data = (IMAGES / "report.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width >= 1000, height >= 600) == (True, True)
