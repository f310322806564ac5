"""The documentation as a site: every page once and in the navigation, built without a warning."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = runpy.run_path(str(ROOT / "docs/conf.py"))
NAMED = [page for part in CONFIG["NAVIGATION"].values() for page in part]


def test_every_page_is_in_the_navigation_once() -> None:
    files = [path for pattern in ("*.md", "docs/*.md", "docs/*.ipynb") for path in ROOT.glob(pattern)]
    assert len(NAMED) == len(set(NAMED))
    assert {path.relative_to(ROOT).with_suffix("").as_posix() for path in files} <= {CONFIG["root_doc"], *NAMED}
    assert all(any((ROOT / f"{page}{suffix}").exists() for suffix in CONFIG["source_suffix"]) for page in NAMED)


@pytest.mark.slow
def test_links_lead_to_a_page_and_a_place_in_it(tmp_path: Path) -> None:
    """With -W, Sphinx fails for a link to a page or an anchor that is not there, and for whatever else it warns of."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
