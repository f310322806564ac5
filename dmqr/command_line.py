"""The command line: `dmqr VERB`, also as `python -m jobs VERB`; made of the functions' signatures by cyclopts.

Standard output holds the result only: a table and, as the last line of `run`, the run's folder. Standard error shows the
display on a terminal, else the log: lines of text, or of JSON with `--log json` (jobs/terminal/logs.py). Its last line, when a
verb is refused or fails, is plain text: `dmqr VERB: what; remedy`. Exit codes: 0 done, 1 failed or stopped (the same command
resumes), 2 refused (config, input or cluster), 130 / 143 interrupted.
"""

from __future__ import annotations

import inspect
import os
import select
import shlex
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cluster.errors import ConfigError, DmqrError, Stopped, UnavailableError
from dmqr.arguments import VERB_NAMES, function_of, parsed, spelled
from dmqr.face import COMMAND_LINE, Face
from dmqr.results import WIDTH

if TYPE_CHECKING:
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


def entry_point() -> NoReturn:
    """Ends this process with the exit code of one verb.

    After a stop that does not wait, such as a stall, a thread of an in-process run may still be inside a model. PyTorch aborts
    the process when Python ends beside it ("terminate called without an active exception", exit code 134), so it does not.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # a job sends that it ends, and Ray may be starting
        signal.signal(signal.SIGTERM, _terminated)
    code = main()
    running = sys.modules.get("jobs.run.stream")  # imported by verbs that run
    if running is not None and running.is_streaming():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _terminated(number: int, _: object) -> NoReturn:
    """Ends a verb by the exception that Ray raises on SIGTERM."""
    raise SystemExit(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    if hasattr(sys.stdout, "reconfigure"):  # unencodable characters are replaced, not an error
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe early, which is no fault; nor shall Python say so at its end
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 0


def _main(tokens: list[str]) -> int:
    """Runs the function of one command, and says in one line why it is refused or has failed."""
    if tokens[:1] == ["help"]:
        tokens = [*tokens[1:], "--help"]
    verb = next((name for name in VERB_NAMES if tokens[: len(name.split())] == name.split()), "")
    try:
        function, given, named = parsed(tokens)
        face = CommandLine(verb, tokens, named.pop("json", False), named.pop("log_form", None) == "json")
        before = COMMAND_LINE.set(face)
        try:
            return _show(verb, function(*given, **named), face.as_json)
        except Stopped as stop:
            if stop.result is not None:
                _show(verb, stop.result, face.as_json)
            raise
        finally:
            COMMAND_LINE.reset(before)
    except DmqrError as error:
        if error.code in ("argument", "judgements") and verb:  # the function names a parameter, a person has typed an option
            name = error.line.split(" ")[0].rstrip(":")
            parameter = inspect.signature(function_of(verb)).parameters.get(name)
            error.line = error.line if parameter is None else error.line.replace(name, spelled(parameter).partition("|")[0], 1)
        error.line = with_config(error.line, tokens)
        return say(verb, error, error.exit_code)
    except KeyboardInterrupt as stop:
        return say(verb, str(stop) or "interrupted; start it again", 130)
    except SystemExit as stop:  # raised on SIGTERM, and by rich where the reader of a help is gone
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else 1
        return say(verb, "interrupted; start it again", 143) if stop.code == signal.SIGTERM else code
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        remedy = "run the Python in which dmqr is installed; for a submitted job activate its environment before"
        remedy += " `ray start` on every node, or submit with --pip"
        refusal = ConfigError("package-missing", f"{sys.executable}: has no package {package}; {remedy}")
        return say(verb, refusal, 2)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            raise
        return say(verb, _failure(error), 1)


def _failure(error: Exception) -> str:
    """Returns the message of a system error or of a bug; writes the traceback of a bug to standard error."""
    from cluster.cause import cause
    from jobs.terminal.logs import system

    if isinstance(error, UnavailableError):
        return f"{system(error)}: the same command [{error.code}]"
    if isinstance(error, OSError) and error.strerror:
        return system(error)
    traceback.print_exception(error)
    return f"{cause(error)}; report it with the trace above"


def _reader_is_gone() -> bool:
    """Returns True if it is standard output's pipe that is broken, not that of a socket or a worker."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # closed, or no file
        return False


def _show(verb: str, result: Any, as_json: bool, *, several: bool = False) -> int:
    """Prints a result, or each of several as it comes, one line of JSON each; returns the exit code."""
    if result is None:  # help is printed already
        return 0
    import json

    from jobs.terminal.live_display import page_text

    if isinstance(result, str):
        print(result, end="" if not result or result.endswith("\n") else "\n")
        return 0
    if isinstance(result, DmqrError):
        return say(verb, result, 0 if sys.stdin.isatty() else 1)
    if isinstance(result, Iterator):
        return max((_show(verb, each, as_json, several=True) for each in result), default=0)
    if as_json:
        plain = lambda value: list(value) if isinstance(value, Sequence | set) else str(value)  # noqa: E731
        print(json.dumps(result.values, ensure_ascii=False, indent=None if several else 1, default=plain), flush=several)
    else:
        page, width = result.page(), shutil.get_terminal_size((WIDTH, 24)).columns
        for line in (result.title, "" if page is None else page_text(page, width, sys.stdout), *result.lines):
            if line:
                print(line)
    return say(verb, result.failure, result.code) if result.code else 0


def say(verb: str, message: object, code: int) -> int:
    """Writes the last line of standard error, with the code of an error that has one; returns the exit code."""
    error_code = f" [{message.code}]" if isinstance(message, DmqrError) else ""
    print(f"{f'dmqr {verb}'.rstrip()}: {message}{error_code}", file=sys.stderr)
    return code


def with_config(line: str, tokens: Sequence[str]) -> str:
    """Returns a message in which `CONFIG` is the config of a command, with the options that change what it says."""
    config = next((token for token in tokens if token.endswith((".yaml", ".yml")) and os.path.isfile(token)), None)
    options = [[token, value] for token, value in pairwise(tokens) if token in ("--set", "--date", "--corpus")]
    return line if config is None else line.replace(" CONFIG", f" {shlex.join([config, *chain.from_iterable(options)])}")


class CommandLine(Face):
    """A person at a command line: notes and the log go to standard error."""

    def __init__(self, verb: str, tokens: Sequence[str], as_json: bool, json_log: bool) -> None:
        super().__init__()
        self._verb, self._tokens, self.as_json, self.json_log = verb, tokens, as_json, json_log
        self.program = program()

    def job_log(self, verb: str, run: str = "") -> AbstractContextManager[tuple[LiveDisplay, LogFiles]]:
        from jobs.terminal.log_files import logged

        return logged(verb, run, self.json_log is True)

    @contextmanager
    def working(self, verb: str) -> Iterator[LiveDisplay]:
        with self.job_log(verb) as (display, _):
            yield display

    def note(self, line: str) -> None:
        print(f"dmqr {self._verb}: {line}", file=sys.stderr)

    def again(self, config: Any, settings: Mapping[str, Any], address: str = "") -> str:
        """Returns the typed command: it resumes the job, or submits it again; tomorrow, too, if `{date}` is in the config."""
        from cluster.run.job_server import submitting_command
        from jobs.config.load import yesterday

        tokens = [*shlex.split(self.program), *self._tokens]
        if not any(token.startswith("--date") for token in tokens):
            dated = "{date}" in Path(config).read_text(encoding="utf-8") + "".join(map(str, settings.values()))
            tokens += ["--date", yesterday()] if dated else []
        if address and not any(token.startswith("--address") for token in tokens):
            tokens += ["--address", address]
        return (not address and submitting_command()) or shlex.join(tokens)


def program() -> str:
    """Returns the name of this program, for commands that a person shall type."""
    on_path, own = shutil.which("dmqr"), Path(sys.executable).with_name("dmqr")
    return "dmqr" if on_path and Path(on_path).absolute() == own else f"{sys.executable} -m jobs"
