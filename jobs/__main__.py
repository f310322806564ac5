"""The command line: `dmqr VERB`, also as `python -m jobs VERB`.

Standard output holds the result only: a table and, as the last line of `run`, the run's folder. Standard error shows the
display on a terminal, else the log as JSON lines (jobs/terminal/logs.py). Its last line, when a verb is refused or fails, is
plain text: `dmqr VERB: what; remedy`. Exit codes: 0 done, 1 failed or stopped (the same command resumes), 2 refused (config,
input or cluster), 130 / 143 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import keyword
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from cluster.cause import cause
from cluster.errors import DmqrError, UnavailableError
from jobs.cli.refusal import other_python, say, with_command

try:
    from jobs.cli import verbs
    from jobs.cli.command_line.arguments import parser
    from jobs.terminal.logs import tell_failure
    from jobs.terminal.system_errors import system
except ModuleNotFoundError as error:  # as of a submitted job, whose `python` is not that of Ray
    sys.exit(say("", other_python(error), 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    if hasattr(sys.stdout, "reconfigure"):  # unencodable characters are replaced, not an error
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe early, which is no fault; nor shall Python say so at its end
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 0


def entry_point() -> NoReturn:
    """Ends this process with the exit code of one verb.

    After a stop that does not wait, such as a stall, a thread of an in-process run may still be inside a model. PyTorch aborts
    the process when Python ends beside it ("terminate called without an active exception", exit code 134), so it does not.
    """
    code = main()
    running = sys.modules.get("jobs.run.stream")  # imported by verbs that run
    if running is not None and running.is_streaming():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _reader_is_gone() -> bool:
    """Returns whether it is standard output's pipe that is broken, not that of a socket or a worker."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # closed, or no file
        return False


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    try:
        name = f"{options.verb}_" if keyword.iskeyword(options.verb) else options.verb  # try, import
        function = getattr(verbs, name, None) or _of_own_file(name)
        return int(function(options))
    except DmqrError as error:
        error.line = with_command(error.line, options)
        return say(options.verb, error, error.exit_code)
    except KeyboardInterrupt:
        return say(options.verb, "interrupted; start it again", 130)
    except SystemExit as stop:  # raised by Ray on SIGTERM during its start
        return say(options.verb, "interrupted; start it again", 143) if stop.code == signal.SIGTERM else 1
    except ModuleNotFoundError as error:
        return say(options.verb, other_python(error), 2)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            raise
        return say(options.verb, _failure(options.verb, error), 1)


def _of_own_file(verb: str) -> Callable[[argparse.Namespace], int]:
    """Returns the function of a verb that has a file of its own in jobs/cli."""
    function: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"jobs.cli.{verb}"), verb)
    return function


def _failure(verb: str, error: Exception) -> str:
    """Returns the message of a system error or of a bug; writes the traceback of a bug to standard error."""
    if isinstance(error, UnavailableError):
        return f"{system(error)}: the same command [{error.code}]"
    if isinstance(error, OSError) and error.strerror:
        return system(error)
    tell_failure(verb, error)
    return f"{cause(error)}; report it with the trace above"


if __name__ == "__main__":
    entry_point()
