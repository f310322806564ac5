"""Python in processes of its own, which may be killed."""

import signal
import subprocess
import sys
import textwrap

from tests.support.jobs.whole_runs import ROOT
from tests.support.waits import PATIENCE


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts code in the folder of the project; its input can be written, its output read."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def check_killed(code: str, *arguments: str) -> None:
    """Runs code that kills its own process."""
    assert python(code, *arguments).wait(PATIENCE) == -signal.SIGKILL
