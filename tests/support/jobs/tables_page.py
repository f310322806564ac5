"""The examples of docs/results-and-tables.md before its recipes, and what they print."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.jobs.whole_runs import PATIENCE, ROOT

PAGE = (ROOT / "docs/results-and-tables.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```", PAGE.partition("\n## Recipes\n")[0], re.MULTILINE | re.DOTALL)


def example(folder: Path) -> str:
    """Returns what the page's Python prints in a folder with configs/ and runs/, all of it together."""
    code = "\n".join(text for kind, text in BLOCKS if kind == "python")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(text: str) -> list[list[str]]:
    """The words of each line, without the lines of boxes."""
    return [found for line in text.splitlines() if (found := re.sub("[│┌┐└┘├┤─┬┴┼]", " ", line).split())]
