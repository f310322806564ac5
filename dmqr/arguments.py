"""Arguments of a verb, read by cyclopts; errors are one line with the nearest name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from cluster.errors import ConfigError, nearest
from dmqr.parameters import KEYS, Argument, Verb, verbs

SHELLS = ("bash", "zsh", "fish")
_FILES = {"FILE", "FILE|SPEC", "FOLDER", "PATH", "RUN", "QRELS"}  # a shell completes them, and what a config may stand for


def parsed(verb: Verb, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the positional and the named arguments of a verb's function.

    Raises:
        ConfigError: an argument is unknown, missing, invalid, or one too many.
    """
    app = _app(verb.name)
    app.default(_command(verb))
    try:
        _, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise ConfigError("argument", f"{_line(error, verb, words)}; see dmqr {verb.name} --help") from None
    given = {name: _value(verb, name, value) for name, value in bound.arguments.items()}
    settings = given.pop("settings", {})  # may name the section `corpus` beside the argument of that name
    positional: list[Any] = []
    for name, parameter in inspect.signature(verb.function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += given.pop(name, ())
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(given.pop(name, None))
    return positional, settings | given


def whole() -> cyclopts.App:
    """Returns the whole command line, for the completion of shells."""
    app = _app("dmqr")
    parts: dict[str, cyclopts.App] = {"": app}
    for verb in verbs():
        first, _, action = verb.name.partition(" ")
        if action and first not in parts:
            parts[first] = _app(first)
            app.command(parts[first])
        parts[first if action else ""].command(_command(verb, completed=True), name=action or first, help=verb.summary)
    return app


def _app(name: str) -> cyclopts.App:
    return cyclopts.App(name=name, help_flags=[], version_flags=[], result_action="return_value", help_format="plaintext")


def _command(verb: Verb, completed: bool = False) -> Any:
    """Returns a function without a body that has the arguments of a verb."""

    def command() -> None: ...

    several = [one for one in verb.arguments if not one.is_option and one.many]
    parameters = [_parameter(one, completed) for one in sorted(verb.arguments, key=lambda one: (one.is_option, one in several))]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(argument: Argument, completed: bool) -> inspect.Parameter:
    kind: Any = Literal[KEYS] if argument.parameter == "key" else argument.kind
    if completed and {*argument.metavar.split("|")} & {*_FILES, "CONFIG"}:
        kind = Path  # not of a value that is read: a path of s3:// would lose a slash
    several = not argument.is_option and bool(argument.many)
    if argument.is_option and argument.many in ("each", "list"):
        kind = list[kind]
    optional = not argument.required and not several
    name = argument.spelled if argument.is_option else None
    more = cyclopts.Parameter(name=name, help=argument.meaning, negative="", consume_multiple=argument.many == "list")
    named, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY
    return inspect.Parameter(
        argument.parameter,
        inspect.Parameter.VAR_POSITIONAL if several else named if argument.is_option else positional,
        default=None if optional else inspect.Parameter.empty,
        annotation=Annotated[(kind | None if optional else kind, more)],
    )


def _value(verb: Verb, name: str, value: Any) -> Any:
    """Returns a value as the verb's function takes it."""
    from jobs.config.load import given_setting

    argument = next(one for one in verb.arguments if one.parameter == name)
    if name == "settings":
        found: dict[str, Any] = {}
        for key, setting in map(given_setting, value):
            found.pop(key, None)  # a later one replaces it, and what lies between
            found[key] = setting
        return found
    if argument.many == "commas":  # those within brackets part nothing: nDCG(gains={0:0,1:3})@10
        return [name.strip() for name in re.split(r",(?![^({]*[)}])", value)]
    return value


def _line(error: CycloptsError, verb: Verb, words: Sequence[str]) -> str:
    """Returns what is wrong with the arguments."""
    field = None if error.argument is None else error.argument.field_info.name
    argument = next((one for one in verb.arguments if one.parameter == field), verb.arguments[0])
    error.verbose = False
    spelled, line = argument.spelled, " ".join(str(error).split())
    if isinstance(error, UnknownOptionError):
        given = (error.token.keyword or error.token.value).partition("=")[0]
        line = f"unknown argument {given!r}{nearest(given, sorted(one.spelled for one in verb.arguments if one.is_option))}"
    elif isinstance(error, UnusedCliTokensError):
        line = f"{(error.unused_tokens or [''])[0]!r} is one argument too many"
    elif isinstance(error, MissingArgumentError) and any(word.partition("=")[0] == spelled for word in words):
        line = f"{spelled}: its value is missing; give {argument.metavar}"
    elif isinstance(error, MissingArgumentError):
        line = f"{spelled} is missing: {argument.meaning}"
    elif isinstance(error, CoercionError) and error.token is not None:
        wanted = f"one of {', '.join(KEYS)}" if argument.parameter == "key" else "a whole number"
        line = f"{spelled} {error.token.value}: is invalid; give {wanted}"
    elif isinstance(error, RepeatArgumentError):
        line = f"{error.token.keyword}: is given twice; give it once"
    return line
