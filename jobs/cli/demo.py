"""The verb demo: the sample in a folder of its own, run, and its page opened."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import webbrowser
from pathlib import Path

from jobs.cli.command_line.arguments import program
from jobs.cli.log_verbs import caller
from jobs.cli.printing import show

HERE = ["cluster.address=none"]  # in this process: so little work is done before Ray has started


def demo(options: argparse.Namespace) -> int:
    """Writes the sample into a folder, runs it there, and opens its page."""
    from jobs.config.load import load_config
    from jobs.job.prepare import prepare
    from jobs.runs.folder import REPORT
    from jobs.verbs.building import building
    from jobs.verbs.sample import QUICKSTART, write_sample
    from jobs.verbs.whole_run import whole_run

    folder = Path(options.to or tempfile.mkdtemp(prefix="dmqr-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_sample(folder)
    os.chdir(folder)  # paths of a config are relative to the current folder
    config = load_config(QUICKSTART, HERE)
    again = shlex.join([*shlex.split(program()), "demo", "--to", str(folder)])
    called = caller(again)
    found = whole_run(prepare(config, QUICKSTART, building(called, "demo")), called, "demo")
    code = show(options, found.values, found.page, found.folder.storage.root)
    page = Path(found.folder.storage.url(REPORT))
    if options.no_open or not _opened(page):
        print(f"dmqr demo: the page: {page.as_uri()}", file=sys.stderr)
    words = f"cd {shlex.quote(str(folder))} && {program()} try {QUICKSTART} 'why do onions make you cry'"
    print(f"dmqr demo: what next: {words}", file=sys.stderr)
    return code


def _opened(page: Path) -> bool:
    """Returns whether a browser was asked to show the page: where there is no screen, one of the terminal is not meant."""
    screen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not screen or not page.exists():
        return False
    try:
        return webbrowser.open(page.as_uri())
    except webbrowser.Error:
        return False
