"""The documentation as a site, from the same files that a repository shows: `python -m sphinx -W -c docs . build/site`.

Sphinx with MyST, since both are kept, and since they read pages as they stand: with links to files outside of docs/ and to
headings, as a repository shows them. The root of the sources is the clone. `-W`: a link or an anchor that leads nowhere, and
a page that is not in `NAVIGATION`, or twice, is an error.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

NAVIGATION = {
    "Use": (
        "docs/quickstart", "docs/concepts", "docs/strategies", "docs/engines-and-indexes", "docs/config", "docs/python",
        "docs/notebook",
    ),
    "Compare": ("docs/ablations", "docs/answers", "docs/results-and-tables", "tests/benchmarks/RESULTS"),
    "Operate": ("docs/operations", "docs/clusters", "docs/errors"),
    "The project": ("configs/sample/README", "CONTRIBUTING", "CHANGELOG", "SECURITY"),
}  # fmt: skip
"""Title of a part -> its pages, below the README."""

project = "dmqr"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
root_doc = "README"
include_patterns = [f"{page}.*" for page in (root_doc, *(page for part in NAVIGATION.values() for page in part))]
include_patterns += ["docs/*.md", "docs/*.ipynb"]  # a page that `NAVIGATION` lacks is to be told
exclude_patterns = [".*", "build", "index", "runs"]
myst_heading_anchors = 4
html_theme = "pydata_sphinx_theme"
html_title = "dmqr"
html_show_sourcelink = False
html_sidebars = {"**": []}  # pages have no pages below them
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}


def setup(app: Any) -> None:
    """Has pages changed as they are read."""
    app.connect("source-read", _as_markdown)


def _as_markdown(app: Any, page: str, source: list[str]) -> None:
    """Puts the navigation behind the README, where the file itself would show it; makes a page of a notebook's cells."""
    if page == root_doc:
        source[0] += "".join(
            f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
            for title, pages in NAVIGATION.items()
        )
    if str(app.env.doc2path(page)).endswith(".ipynb"):
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(source[0])["cells"]]
        source[0] = "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells)
