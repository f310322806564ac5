"""A `dmqr` on the PATH of a scheduler: the quickstart made small, and before it the exit codes that a test wants."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from pathlib import Path

from tests.support.jobs.whole_runs import ROOT

CONFIG = ROOT / "configs/quickstart.yaml"
NIGHT = "2026-01-30"


class Scheduled:
    """The command, what it was called with, and the exit codes of its first calls."""

    def __init__(self, place: Path) -> None:
        """Writes the command into `place`/bin."""
        self.place = place
        small = {
            "retrieve.retrievers": json.dumps({"bm25": {"kind": "local", "index": str(place / "index")}}),
            "rerank": "{kind: none}",
            "cluster.address": "none",
            "output": str(place / "runs"),
        }
        sets = shlex.join([word for key, value in small.items() for word in ("--set", f"{key}={value}")])
        script = place / "bin/dmqr"
        script.parent.mkdir()
        script.write_text(
            f"""#!/bin/sh
echo "$@" >> {place}/calls
code=$(head -n 1 {place}/codes 2> /dev/null)
if [ -n "$code" ]; then sed -i 1d {place}/codes; exit "$code"; fi
cd {ROOT} && PYTHONPATH={ROOT} exec {sys.executable} -m jobs "$@" {sets}
"""
        )
        script.chmod(script.stat().st_mode | stat.S_IEXEC)

    def first(self, *codes: int) -> None:
        """Has the next calls end with these codes."""
        (self.place / "codes").write_text("".join(f"{code}\n" for code in codes))
        (self.place / "calls").unlink(missing_ok=True)

    @property
    def calls(self) -> list[str]:
        """What it was called with, since `first`."""
        path = self.place / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """An environment with the command on its PATH."""
        without = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return without | {"PATH": f"{self.place / 'bin'}:{os.environ['PATH']}", "DMQR_CONFIG": str(CONFIG)}
