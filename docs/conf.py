"""The documentation as a site, from the same files that a repository shows: `python -m sphinx -W -c docs . build/site`.

Sphinx with MyST, since both are kept, and since they read pages as they stand: with links to files outside of docs/ and to
headings, as a repository shows them. The root of the sources is the clone. `-W`: a link or an anchor that leads nowhere, and
a page that is not in `NAVIGATION`, or twice, is an error.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

NAVIGATION = {
    "Use": (
        "docs/install", "docs/python", "docs/strategies", "docs/strategy-files", "docs/settings", "docs/config", "docs/plugins",
        "docs/coming-from",
    ),
    "Operate": (
        "docs/operations", "docs/cluster", "docs/kubernetes", "docs/store", "docs/tables", "docs/metrics", "docs/errors",
    ),
    "Stages by choice": ("docs/answers", "docs/corrective", "docs/judges", "docs/collections", "docs/clicks"),
    "Compare": ("docs/ablations", "docs/ablations-measured", "tests/benchmarks/RESULTS"),
    "The project": ("docs/architecture", "configs/sample/README", "CONTRIBUTING", "CHANGELOG", "SECURITY"),
}  # fmt: skip
"""Title of a part -> its pages, below the README."""

project = "dmqr"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [f"{page}.md" for page in (root_doc, *(page for part in NAVIGATION.values() for page in part))]
include_patterns.append("docs/*.md")  # one that `NAVIGATION` lacks is to be told
exclude_patterns = [".*", "build", "index", "runs"]
myst_heading_anchors = 4
html_theme = "pydata_sphinx_theme"
html_title = "dmqr"
html_show_sourcelink = False
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}


def setup(app: Any) -> None:
    """Puts the navigation behind the README as it is built; in the file itself it would show."""
    app.connect("source-read", _with_navigation)


def _with_navigation(_app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += "".join(
            f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
            for title, pages in NAVIGATION.items()
        )
