"""What the verbs that work through a log have in common: the config, and how a person goes on."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cluster.run.own_job import submitting_command
from jobs.cli.command_line.arguments import program

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.verbs.caller import Caller


def caller(again: str) -> Caller:
    """Returns this command line as the caller of a verb; the command `again` goes on with the job."""
    from jobs.terminal.log_files import logged
    from jobs.verbs.caller import Caller

    return Caller(logged, program(), again)


@contextmanager
def told_of(config: Config, options: argparse.Namespace, verb: str) -> Iterator[Caller]:
    """Yields this command line as the caller of a verb whose end is told to whom the config names, also after SIGTERM."""
    from jobs.notify import Notifications

    ends = _sigterm_raised() if config.notify else nullcontext()
    with ends, Notifications(config.notify, verb, config.name).telling() as told:
        yield caller(again(options, verb))._replace(told=told)


@contextmanager
def _sigterm_raised() -> Iterator[None]:
    """Has SIGTERM end the body by the exception that Ray raises, where it would kill the process before that is sent."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:  # Ray may have put one of its own there
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def load(options: argparse.Namespace) -> Config:
    """Returns the config that the arguments of a verb name.

    Raises:
        ConfigError: it is invalid.
    """
    from jobs.config.load import load_config

    return load_config(options.config, options.set, options.date, getattr(options, "label", None))


def again(options: argparse.Namespace, verb: str = "run") -> str:
    """Returns the command that goes on with this run; tomorrow, too, if `{date}` is in the config.

    A submitted job goes on when it is submitted again.
    """
    return submitting_command() or shlex.join(command_words(options, verb))


def command_words(options: argparse.Namespace, verb: str, *first: str) -> list[str]:
    """Returns the words that call a verb again with these options, `first` behind the config; also tomorrow, with `{date}`."""
    words = [*shlex.split(program()), verb, options.config, *first]
    words += [word for setting in options.set for word in ("--set", setting)]
    dated = "{date}" in Path(options.config).read_text(encoding="utf-8") + "".join(options.set)
    if options.date or dated:
        from jobs.config.load import yesterday

        words += ["--date", options.date or yesterday()]
    words += ["--label", options.label] if options.label else []
    words += ["--retry", reason] if (reason := getattr(options, "retry", None)) else []
    return words + (["--measures", ",".join(measures)] if (measures := getattr(options, "measures", None)) else [])
