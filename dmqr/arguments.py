"""The command line as an app of cyclopts, with arguments and help from signatures and docstrings of functions of `dmqr`."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dmqr
from cluster.errors import ConfigError

if TYPE_CHECKING:
    import cyclopts

VERBS = {
    "First hour": ("init", "index", "try", "plan", "run", "report"),
    "Every night": ("submit", "logs", "stop", "runs", "export", "store gc", "store forget"),
    "Analysis": ("ablate", "evaluate", "diff", "tune"),
}
"""Group -> its verbs, which are functions of `dmqr`."""
VERB_NAMES = [*chain.from_iterable(VERBS.values())]
_SUMMARY = "Rewrites a query log in several ways, retrieves with every rewrite, fuses and reranks; see README.md."
_NIGHT = ("index", "plan", "run", "report")  # verbs whose examples are one night
_UNLOGGED = ("init", "runs", "report", "evaluate", "diff", "stop")  # verbs without a log
_SPELLED = {"settings": "--set", "to": "--to", "corpus": "--corpus", "as_ablation": "--ablate", "log_form": "--log"}
_METAVARS = {
    "config": "CONFIG", "given": "CONFIG|QUERY", "settings": "A.B=VALUE", "date": "YYYY-MM-DD", "measures": "NAME,...",
    "baseline": "ARM", "arm": "ARM", "label": "TEXT", "context": "TEXT", "retry": "REASON", "address": "URL",
    "unused": "DURATION", "value": "NAME=TEXT", "to": "FOLDER", "corpus": "PATH", "pip": "FILE|SPEC", "uv": "FILE|SPEC",
    "run": "RUN", "a": "RUN", "b": "RUN", "job": "RUN|CONFIG|ID", "output": "CONFIG|OUTPUT|RUN", "store": "CONFIG|STORE",
    "query": "QUERY", "qrels": "QRELS", "log": "LOG", "documents": "CORPUS", "key": "log_id|query_id|query",
    "log_form": "text|json",
}  # fmt: skip
"""Parameter -> what stands for its value; of others N, where it is a number, or FILE."""
_PATHS = {"CONFIG", "FILE", "FOLDER", "PATH", "RUN", "QRELS", "OUTPUT", "STORE", "LOG", "CORPUS"}  # a shell completes them


def function_of(verb: str) -> Callable[..., Any]:
    """Returns the function that does a verb."""
    function: Callable[..., Any] = getattr(dmqr, "try_query" if verb == "try" else verb.replace(" ", "_"))
    return function


def spelled(parameter: inspect.Parameter) -> str:
    """Returns an argument as typed: its option, or the placeholder of a positional argument."""
    is_positional = parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY)
    if is_positional and parameter.name not in _SPELLED:
        return _METAVARS[parameter.name]
    return _SPELLED.get(parameter.name, f"--{parameter.name.replace('_', '-')}")


def parsed(tokens: Sequence[str]) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """Returns the function of a command, its positional and its named arguments."""
    from cyclopts.exceptions import CycloptsError

    try:
        command, bound, _ = command_line().parse_args(list(tokens), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        error.verbose = False
        line = " ".join(str(error).split()).partition(" Available commands")[0].rstrip(" ,.")
        raise ConfigError("argument", f"{line}; see {' '.join(['dmqr', *(error.command_chain or ())])} --help") from None
    if not hasattr(command, "function"):  # of cyclopts, such as help
        return command, [*bound.args], bound.kwargs
    from jobs.config.load import given_setting

    given = dict(bound.arguments)
    settings: dict[str, Any] = {}  # may name the section `corpus` beside the argument of that name
    for key, setting in map(given_setting, given.pop("settings", ())):
        settings.pop(key, None)  # a later one replaces it, and what lies between
        settings[key] = setting
    if "measures" in given:  # commas within brackets part nothing: nDCG(gains={0:0,1:3})@10
        given["measures"] = [name.strip() for name in re.split(r",(?![^({]*[)}])", given["measures"])]
    positional: list[Any] = []
    for name, parameter in inspect.signature(command.function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += given.pop(name, ())
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(given.pop(name, None))
    return command.function, positional, settings | given


def command_line(completed: bool = False) -> cyclopts.App:
    """Returns the app of all verbs; `completed`: in which paths are of a type that shells complete."""
    import cyclopts

    pages = {verb: documented(function_of(verb)) for verb in VERB_NAMES}
    meanings = {name: meaning for _, own, _ in reversed(pages.values()) for name, meaning in own.items()}

    def app(name: str, summary: str, **more: Any) -> cyclopts.App:
        return cyclopts.App(name=name, help=summary, help_format="plaintext", result_action="return_value", **more)

    night = "\n".join(["One night:", *(f"  {pages[verb][2]}" for verb in _NIGHT)])
    version = f"dmqr {importlib.metadata.version('dmqr')}"
    whole = app("dmqr", _SUMMARY, version=version, help_epilogue=night)
    parts = {"": whole}
    for position, (title, names) in enumerate(VERBS.items()):
        group = cyclopts.Group(title, sort_key=position)
        for number, verb in enumerate(names):
            first, _, action = verb.rpartition(" ")
            if first not in parts:
                parts[first] = app(first, "Keeps a store small, or free of a query.", group=group, sort_key=number)
                whole.command(parts[first])
            help_page, own, example = pages[verb]
            more: dict[str, Any] = {
                "group": None if first else group,
                "sort_key": number,
                "help_epilogue": f"Example:\n  {example}",
            }
            parts[first].command(_command(verb, meanings | own, completed), name=action, help=help_page, **more)
    whole.command(_completion, name="--print-completion", group=whole["--help"].group)
    return whole


def _completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Prints the completion script of a shell."""
    print(command_line(completed=True).generate_completion(shell=shell))


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str], str]:
    """Returns a docstring without its sections, argument -> its meaning for a shell, and the example."""
    parts = re.split(r"^(Args|Raises|Example):\n", inspect.cleandoc(function.__doc__ or ""), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    arguments = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", sections.get("Args", ""), re.MULTILINE)
    meanings = {name: " ".join(meaning.split()).partition("; in Python")[0] for name, meaning in arguments}
    return parts[0].strip(), meanings, sections.get("Example", "").strip()


def _command(verb: str, meanings: dict[str, str], completed: bool) -> Any:
    """Returns a function without a body that has the arguments of a verb as cyclopts reads them."""
    function = function_of(verb)

    def command() -> None: ...

    given = inspect.signature(function).parameters
    arguments = [_argument(given[name], meanings[name], completed) for name in given if name != "progress"]
    if verb not in ("report", "logs"):
        json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool")
        arguments.append(_argument(json, "print one JSON object in place of the table", completed))
    if verb not in _UNLOGGED:
        form = inspect.Parameter("log_form", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="text | json")
        arguments.append(_argument(form, "lines of the log on standard error (default: text)", completed))
    arguments.sort(key=lambda argument: argument.kind)
    command.function = function  # type: ignore[attr-defined]
    command.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
    command.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    return command


def _argument(parameter: inspect.Parameter, meaning: str, completed: bool) -> inspect.Parameter:
    import cyclopts

    name, types = parameter.name, str(parameter.annotation)
    kind: Any = {"bool": bool, "int": int}.get(types.partition(" ")[0], str)
    metavar = None if kind is bool else _METAVARS.get(name, "N" if kind is int else "FILE")
    kind = Literal[tuple(str(metavar).split("|"))] if name in ("key", "log_form") else kind
    if completed and metavar and {*metavar.split("|")} & _PATHS:
        kind = Path  # not of a value that is read: a path of s3:// would lose a slash
    form, many = parameter.kind, name in ("pip", "uv", "corpus")
    typed = spelled(parameter)
    if typed.startswith("-"):
        form = parameter.KEYWORD_ONLY
        kind = list[kind] if many or name in ("settings", "value") else kind
    default = parameter.default
    if name == "settings" or default is not parameter.empty:
        kind, default = kind | None, None
    more = cyclopts.Parameter(
        name=typed, help=meaning, metavar=metavar, negative="", consume_multiple=many, show_default=False, show_choices=False
    )
    annotation: Any = Annotated[(kind, more)]
    return inspect.Parameter(name, form, default=default, annotation=annotation)
