"""Makes the README's pictures anew, of the quickstart: `python docs/pictures.py`. It needs a Chromium on the path.

images/terminal.svg   what `dmqr run configs/quickstart.yaml` prints into a terminal
images/report.png     the first screen of the page that it writes
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
SAMPLE = "configs/quickstart.yaml"
COLUMNS = 100
SCREEN = (1180, 820)  # pixels of the page
FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono"'
COLOURS = 64  # of its picture: a third of the bytes of all


def main() -> None:
    """Runs the quickstart in a temporary folder, and writes both pictures."""
    browser = next((program for name in ("chromium", "google-chrome", "chrome") if (program := shutil.which(name))), None)
    if browser is None:
        sys.exit("docs/pictures.py: there is no Chromium on the path; install one")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "configs", Path(folder) / "configs")
        printed(folder, "index", SAMPLE, "--corpus", "configs/sample/corpus.parquet")
        text = printed(folder, "run", SAMPLE, "--set", "cluster.address=none")
        page = Path(text.rstrip().splitlines()[-1].strip()) / "report.html"
        shown = f"$ dmqr run {SAMPLE}\n" + text.replace(os.path.realpath(folder), "...").replace("\r", "")
        (IMAGES / "terminal.svg").write_text(terminal(shown), encoding="utf-8")
        screen = Path(folder) / "screen.png"
        options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-color-profile=srgb"]
        size = f"--window-size={SCREEN[0]},{SCREEN[1]}"
        subprocess.run([browser, *options, size, f"--screenshot={screen}", page.as_uri()], check=True, capture_output=True)
        Image.open(screen).convert("RGB").quantize(COLOURS).save(IMAGES / "report.png", optimize=True)


def printed(folder: str, *arguments: str) -> str:
    """Returns the output of a verb on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "jobs", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    if process.returncode:
        sys.exit(f"docs/pictures.py: dmqr {' '.join(arguments)} failed with exit code {process.returncode}")
    return text.decode()


def terminal(text: str) -> str:
    """Returns text with a terminal's colours as a drawing."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    drawn = console.export_svg(title="dmqr", theme=MONOKAI, unique_id="dmqr")
    drawn = re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', r'width="\1" height="\2" \g<0>', drawn, count=1)  # else it has no size
    without = re.sub(
        r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL
    )  # of another host, which no viewer of a repository loads
    return re.sub(r"\n\s*\n", "\n", without.replace("Fira Code", FONTS))


if __name__ == "__main__":
    main()
