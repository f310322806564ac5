"""The pictures of the documentation: there, small, made by docs/pictures.py, shown in the README."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
SHOWN = {
    (page.parent / path).resolve()
    for page in PAGES
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
}
MOST_BYTES = 150_000


def test_every_picture_is_shown_made_by_the_script_and_small() -> None:
    there = set(IMAGES.iterdir())
    assert there == SHOWN
    script = (ROOT / "docs/pictures.py").read_text(encoding="utf-8")
    assert {path.name for path in there} == set(re.findall(r'IMAGES / "([^"]+)"', script))
    assert {path.name: path.stat().st_size for path in there if path.stat().st_size >= MOST_BYTES} == {}


def test_the_readme_s_first_screen_shows_the_terminal_and_the_page() -> None:
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:12])
    assert re.findall(r"\]\(docs/images/([^)]+)\)", first) == ["terminal.svg", "report.png"]
