"""The parser of the command line: errors are one line, and options may stand anywhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import shtab

from cluster.errors import nearest

PROGRAM = "dmqr"
REQUIRED = "the following arguments are required: "  # begins argparse's message


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the nearest name; nothing may be abbreviated.

    The options of a verb may stand anywhere among its arguments.
    """

    def __init__(self, **keywords: Any) -> None:
        """Takes the arguments of `argparse.ArgumentParser`."""
        super().__init__(**keywords, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.verbs: Sequence[str] = ()  # of the whole command line
        self._intermixing = False

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2 and one line."""
        if message.startswith(REQUIRED):
            message = self._missing(message.removeprefix(REQUIRED).split(", "))
        if "invalid choice" in message and self.prog == PROGRAM:
            given = message.split("'")[1]
            what, known = ("shell", shtab.SUPPORTED_SHELLS) if "--print-completion" in message else ("verb", list(self.verbs))
            message = f"unknown {what} {given!r}{nearest(given, known)}"
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help [argument]\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the options; ends the process where one of them is unknown.

        No argument at all, or `help`, prints the help; `help VERB` that of a verb.
        """
        words = list(sys.argv[1:] if args is None else args)
        if not words or words[0] == "help":
            words = [*words[1:2], "--help"]
        options, rest = self.parse_known_args(words, namespace)
        if rest:
            given = next((word for word in rest if word.startswith("-")), None)
            what = f"{rest[0]!r} is one argument too many" if given is None else f"unknown argument {given!r}"
            near = "" if given is None else nearest(given.partition("=")[0], options.known)
            self.exit(2, f"dmqr {options.verb}: {what}{near}; see dmqr {options.verb} --help [argument]\n")
        if arrange := getattr(options, "arrange", None):
            arrange(options)
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the options and what is not known; argparse alone would take the arguments of a verb in one piece only."""
        if self.prog == PROGRAM or self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def _missing(self, names: Sequence[str]) -> str:
        """Returns what is missing, with what may stand there."""
        words = {"/".join(one.option_strings) or one.metavar: one.help for one in self._actions}
        return "; ".join(f"{name} is missing: {words.get(name)}" for name in names)
