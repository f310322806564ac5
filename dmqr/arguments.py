"""The verbs of the command line, with arguments and help from signatures and docstrings of functions; read by cyclopts."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import dmqr
from cluster.errors import ConfigError, nearest

if TYPE_CHECKING:
    import cyclopts

VERBS = {
    "First hour": ("index", "try", "plan", "run", "report"),
    "Every night": ("submit", "logs", "stop", "runs", "export", "store gc", "store forget"),
    "Analysis": ("ablate", "evaluate", "diff", "tune"),
}
"""Group -> its verbs, which are functions of `dmqr`."""
SHELLS = ("bash", "zsh", "fish")
_WIDEST = 100
_NAMES = 24  # columns of the names of options
_NIGHT = ("index", "plan", "run", "report")  # verbs whose examples are one night
_KEYS = ("log_id", "query_id", "query")
_SPELLED = {"settings": "--set", "to": "--to", "corpus": "--corpus", "as_ablation": "--ablate"}
_METAVARS = {
    "config": "CONFIG", "given": "CONFIG|QUERY", "settings": "A.B=VALUE", "date": "YYYY-MM-DD", "measures": "NAME,...",
    "baseline": "ARM", "arm": "ARM", "label": "TEXT", "context": "TEXT", "retry": "REASON", "address": "URL",
    "unused": "DURATION", "value": "NAME=TEXT", "to": "FOLDER", "corpus": "PATH", "pip": "FILE|SPEC", "uv": "FILE|SPEC",
    "run": "RUN", "a": "RUN", "b": "RUN", "job": "RUN|CONFIG|ID", "output": "CONFIG|OUTPUT|RUN", "store": "CONFIG|STORE",
    "query": "QUERY", "qrels": "QRELS", "key": "|".join(_KEYS),
}  # fmt: skip
"""Parameter -> what stands for its value; of others N, where it is a number, or FILE."""
_PATHS = {"CONFIG", "FILE", "FOLDER", "PATH", "RUN", "QRELS", "OUTPUT", "STORE"}  # a shell completes them


class Argument(NamedTuple):
    """An argument of a verb."""

    parameter: str
    spelled: str  # `--set`; of a positional one what stands for it, like `CONFIG`
    metavar: str  # the word for its value; empty: it is a switch
    kind: type
    many: str  # `each`: it may be given again; `list`: several values may follow it; empty: it has one value
    required: bool
    meaning: str

    @property
    def is_option(self) -> bool:
        """Returns whether its name is typed."""
        return self.spelled.startswith("-")


class Verb(NamedTuple):
    """A verb of the command line."""

    name: str
    group: str
    function: Callable[..., Any]
    summary: str
    details: str
    arguments: list[Argument]
    example: str


def verb_names() -> list[str]:
    """Returns the first words of commands, in the order of the help."""
    return list(dict.fromkeys(name.split()[0] for names in VERBS.values() for name in names))


def verbs(first: str | None = None) -> list[Verb]:
    """Returns the verbs, or those whose first word this is."""
    named = [(name, group) for group, names in VERBS.items() for name in names]
    return [_verb(name, group) for name, group in named if first is None or name.split()[0] == first]


def _verb(name: str, group: str) -> Verb:
    function = _function(name)
    summary, details, meanings, example = _documented(function)
    for other in chain.from_iterable(VERBS.values()):
        meanings = _documented(_function(other))[2] | meanings  # the first verb that documents what this one leaves out
    parameters = inspect.signature(function).parameters.values()
    arguments = [_argument(one, meanings[one.name]) for one in parameters if one.name != "progress"]  # of Python alone
    arguments.sort(key=lambda one: (one.is_option, one.is_option and one.parameter != "settings"))
    if name not in ("report", "logs"):
        meaning = "print one JSON object in place of the table"
        arguments.append(Argument("json", "--json", "", bool, "", required=False, meaning=meaning))
    return Verb(name, group, function, summary, details, arguments, example)


def _argument(parameter: inspect.Parameter, meaning: str) -> Argument:
    name, types = parameter.name, str(parameter.annotation)
    every = parameter.kind is parameter.VAR_POSITIONAL
    option = name in _SPELLED or not (every or parameter.kind is parameter.POSITIONAL_ONLY)
    kind = {"bool": bool, "int": int}.get(types.partition(" ")[0], str)
    metavar = "" if kind is bool else _METAVARS.get(name, "N" if kind is int else "FILE")
    return Argument(
        name,
        _SPELLED.get(name, f"--{name.replace('_', '-')}") if option else metavar,
        metavar,
        kind,
        many="each" if every or name in ("settings", "value") else "list" if "Sequence" in types and name != "measures" else "",
        required=parameter.default is parameter.empty and name != "settings" and not every,
        meaning=meaning,
    )


def _documented(function: Callable[..., Any]) -> tuple[str, str, dict[str, str], str]:
    """Returns the first sentence of a docstring, the others, argument -> its meaning for a shell, and the example."""
    parts = re.split(r"^(Args|Raises|Example):\n", inspect.cleandoc(function.__doc__ or ""), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    arguments = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", sections.get("Args", ""), re.MULTILINE)
    summary, _, details = (" ".join(part.split()) for part in parts[0].partition("\n\n"))
    meanings = {name: " ".join(meaning.split()).partition("; in Python")[0] for name, meaning in arguments}
    return summary, details, meanings, sections.get("Example", "").strip()


def _function(verb: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(dmqr, "try_query" if verb == "try" else verb.replace(" ", "_"))
    return function


# ---------------------------------------------------------------- help, as wide as the terminal, with bold names there


def overview() -> str:
    """Returns the help of the whole command line: the verbs in groups, and one night."""
    every = verbs()
    longest = max(len(verb.name) for verb in every)
    parts = [
        "Usage: dmqr VERB ...\n",
        _filled("Rewrites a query log in several ways, retrieves with every rewrite, fuses and reranks; see README.md."),
    ]
    for group in dict.fromkeys(verb.group for verb in every):
        rows = [(verb.name, verb.summary.rstrip(".")) for verb in every if verb.group == group]
        parts += ["", _bold(group), *_rows(rows, longest)]
    parts += ["", _bold("Besides"), *_rows([
        ("help VERB", "Shows all options of a verb, and an example"),
        ("--version", "Prints the version"),
        ("--print-completion SHELL", "Prints the completion script of bash, zsh or fish"),
    ], longest)]  # fmt: skip
    examples = [verb.example for name in _NIGHT for verb in every if verb.name == name]
    return "\n".join([*parts, "", _bold("One night"), *(f"  {line}" for line in examples), ""])


def help_page(verb: Verb) -> str:
    """Returns the help of a verb: its arguments, its options, an example."""
    given = [argument for argument in verb.arguments if not argument.is_option]
    options = [argument for argument in verb.arguments if argument.is_option]
    words = [_usage(one) for one in given] + [f"{one.spelled} {one.metavar}" for one in options if one.required]
    parts = [_filled(f"Usage: dmqr {verb.name} {' '.join(words)} [options]", "  "), "", _filled(verb.summary)]
    parts += ["", _filled(verb.details)] if verb.details else []
    for title, arguments in (("Arguments", given), ("Options", options)):
        parts += ["", _bold(title), *_rows([(_named(one), one.meaning) for one in arguments])]
    return "\n".join([*parts, "", _bold("Example"), f"  {verb.example}", ""])


def _usage(argument: Argument) -> str:
    word = f"{argument.metavar}..." if argument.many else argument.metavar
    return word if argument.required or argument.parameter == "given" else f"[{word}]"


def _named(argument: Argument) -> str:
    if not argument.is_option:
        return _usage(argument).strip("[]")
    return f"{argument.spelled} {argument.metavar}".rstrip() + (" ..." if argument.many == "list" else "")


def _rows(rows: Sequence[tuple[str, str]], longest: int = 0) -> Iterable[str]:
    """Yields a line per name, its meaning beside it, or below a name that is longer than the column of names."""
    names = (longest or min(_NAMES, max((len(name) for name, _ in rows), default=0))) + 2
    for name, meaning in rows:
        lines = textwrap.wrap(meaning, _width() - names - 2, break_on_hyphens=False)
        first = lines.pop(0) if len(name) <= names - 2 else ""
        yield f"  {_bold(name)}{' ' * (names - len(name))}{first}".rstrip()
        yield from (f"  {' ' * names}{line}" for line in lines)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _width(), subsequent_indent=indent, break_on_hyphens=False)


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


# ---------------------------------------------------------------- cyclopts


def parsed(verb: Verb, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the positional and the named arguments of a verb's function."""
    from cyclopts.exceptions import CycloptsError

    from jobs.config.load import given_setting

    app = _app(verb.name)
    app.default(_command(verb))
    try:
        _, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise ConfigError("argument", f"{_line(error, verb, words)}; see dmqr {verb.name} --help") from None
    given = dict(bound.arguments)
    settings: dict[str, Any] = {}  # may name the section `corpus` beside the argument of that name
    for key, setting in map(given_setting, given.pop("settings", ())):
        settings.pop(key, None)  # a later one replaces it, and what lies between
        settings[key] = setting
    if "measures" in given:  # commas within brackets part nothing: nDCG(gains={0:0,1:3})@10
        given["measures"] = [name.strip() for name in re.split(r",(?![^({]*[)}])", given["measures"])]
    positional: list[Any] = []
    for name, parameter in inspect.signature(verb.function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += given.pop(name, ())
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(given.pop(name, None))
    return positional, settings | given


def completion(shell: Any) -> str:
    """Returns the completion script of a shell."""
    app = _app("dmqr")
    parts: dict[str, cyclopts.App] = {"": app}
    for verb in verbs():
        first, _, action = verb.name.partition(" ")
        if action and first not in parts:
            parts[first] = _app(first)
            app.command(parts[first])
        parts[first if action else ""].command(_command(verb, completed=True), name=action or first, help=verb.summary)
    return app.generate_completion(shell=shell)


def _app(name: str) -> cyclopts.App:
    import cyclopts

    return cyclopts.App(name=name, help_flags=[], version_flags=[], result_action="return_value", help_format="plaintext")


def _command(verb: Verb, completed: bool = False) -> Any:
    """Returns a function without a body that has the arguments of a verb."""
    import cyclopts

    def command() -> None: ...

    parameters = []
    for argument in verb.arguments:
        kind: Any = Literal[_KEYS] if argument.parameter == "key" else argument.kind
        if completed and {*argument.metavar.split("|")} & _PATHS:
            kind = Path  # not of a value that is read: a path of s3:// would lose a slash
        form: Any = inspect.Parameter.KEYWORD_ONLY
        if not argument.is_option:
            form = inspect.Parameter.VAR_POSITIONAL if argument.many else inspect.Parameter.POSITIONAL_ONLY
        elif argument.many:
            kind = list[kind]
        name: str | None = argument.spelled if argument.is_option else None
        default: Any = inspect.Parameter.empty
        if not argument.required and form is not inspect.Parameter.VAR_POSITIONAL:
            kind, default = kind | None, None
        more = cyclopts.Parameter(name=name, help=argument.meaning, negative="", consume_multiple=argument.many == "list")
        annotation: Any = Annotated[(kind, more)]
        parameters.append(inspect.Parameter(argument.parameter, form, default=default, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _line(error: cyclopts.CycloptsError, verb: Verb, words: Sequence[str]) -> str:
    """Returns what is wrong with the arguments, with the nearest name."""
    from cyclopts import exceptions

    field = None if error.argument is None else error.argument.field_info.name
    argument = next((one for one in verb.arguments if one.parameter == field), verb.arguments[0])
    error.verbose = False
    spelled, line = argument.spelled, " ".join(str(error).split())
    if isinstance(error, exceptions.UnknownOptionError):
        given = (error.token.keyword or error.token.value).partition("=")[0]
        line = f"unknown argument {given!r}{nearest(given, sorted(one.spelled for one in verb.arguments if one.is_option))}"
    elif isinstance(error, exceptions.UnusedCliTokensError):
        line = f"{(error.unused_tokens or [''])[0]!r} is one argument too many"
    elif isinstance(error, exceptions.MissingArgumentError):
        is_there = any(word.partition("=")[0] == spelled for word in words)
        missing = f"its value is missing; give {argument.metavar}"
        line = f"{spelled}: {missing}" if is_there else f"{spelled} is missing: {argument.meaning}"
    elif isinstance(error, exceptions.CoercionError) and error.token is not None:
        wanted = "a whole number" if argument.kind is int else f"one of {', '.join(_KEYS)}"
        line = f"{spelled} {error.token.value}: is invalid; give {wanted}"
    elif isinstance(error, exceptions.RepeatArgumentError):
        line = f"{error.token.keyword}: is given twice; give it once"
    return line
