"""The verbs of the command line, and what their functions' signatures and docstrings say of their arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

VERBS = {
    "First hour": {
        "index": "previews.index",
        "try": "previews.try_query",
        "plan": "previews.plan",
        "run": "whole_jobs.run",
        "report": "analysis.report",
    },
    "Every night": {
        "submit": "cluster_jobs.submit",
        "logs": "cluster_jobs.logs",
        "stop": "cluster_jobs.stop",
        "runs": "upkeep.runs",
        "export": "upkeep.export",
        "store gc": "upkeep.store_gc",
        "store forget": "upkeep.store_forget",
    },
    "Analysis": {
        "ablate": "whole_jobs.ablate",
        "evaluate": "analysis.evaluate",
        "diff": "analysis.diff",
        "tune": "analysis.tune",
    },
}
"""Group -> verb -> its function."""
KEYS = ("log_id", "query_id", "query")
_DOCUMENTING = ("whole_jobs.run", "analysis.evaluate", "cluster_jobs.submit", "cluster_jobs.logs")
_KINDS = {"bool": bool, "int": int}  # others are texts
_HIDDEN = ("progress",)  # of Python alone
_SPELLED = {"settings": "--set", "to": "--to", "as_ablation": "--ablate"}
_METAVARS = {
    "config": "CONFIG", "settings": "A.B=VALUE", "date": "YYYY-MM-DD", "measures": "NAME,...", "baseline": "ARM", "arm": "ARM",
    "label": "TEXT", "context": "TEXT", "retry": "REASON", "address": "URL", "unused": "DURATION", "value": "NAME=TEXT",
    "to": "FOLDER", "corpus": "PATH", "pip": "FILE|SPEC", "uv": "FILE|SPEC", "run": "RUN", "a": "RUN", "b": "RUN",
    "query": "QUERY", "qrels": "FILE", "key": "|".join(KEYS),
}  # fmt: skip
_OF_A_VERB = {
    "try given": "CONFIG|QUERY", "runs config": "CONFIG|OUTPUT|RUN", "logs job": "RUN|CONFIG|ID", "stop job": "RUN|CONFIG|ID",
    "evaluate qrels": "QRELS|ABLATION", "diff qrels": "QRELS", "tune qrels": "QRELS", "store gc config": "CONFIG|STORE",
    "store forget config": "CONFIG|STORE",
}  # fmt: skip
_NO_JSON = ("report", "logs")
JSON = "print one JSON object in place of the table"


class Argument(NamedTuple):
    """An argument of a verb."""

    parameter: str
    spelled: str
    """`--set`; of a positional one what stands for it, like `CONFIG`."""
    metavar: str
    """What stands for its value; empty: it is a switch."""
    kind: type
    many: str
    """`each`: it may be given again; `list`: several values may follow it; `commas`: of one value; empty: one value."""
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
    return list(dict.fromkeys(name.split()[0] for verbs in VERBS.values() for name in verbs))


def verbs(first: str | None = None) -> list[Verb]:
    """Returns the verbs, or those whose first word this is."""
    return [
        _verb(name, group, place)
        for group, places in VERBS.items()
        for name, place in places.items()
        if first is None or name.split()[0] == first
    ]


def _verb(name: str, group: str, place: str) -> Verb:
    function = _function(place)
    (summary, details), _, example = _documented(function)
    found = [
        _argument(name, parameter, _meaning(place, parameter.name))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in _HIDDEN
    ]
    found.sort(key=lambda one: one.parameter == "settings", reverse=True)
    found.sort(key=lambda one: one.is_option)
    if name not in _NO_JSON:
        found.append(Argument("json", "--json", "", bool, "", required=False, meaning=JSON))
    return Verb(name, group, function, summary, details, found, example)


def _argument(verb: str, parameter: inspect.Parameter, meaning: str) -> Argument:
    name, types = parameter.name, str(parameter.annotation)
    many_positional = parameter.kind is parameter.VAR_POSITIONAL
    positional = parameter.kind is parameter.POSITIONAL_ONLY or many_positional
    option = name in _SPELLED or not positional or (verb, name) == ("index", "corpus")
    kind = _KINDS.get(types.partition(" ")[0], str)
    metavar = _OF_A_VERB.get(f"{verb} {name}") or _METAVARS.get(name) or ("N" if kind is int else "FILE")
    many = "each" if name in ("settings", "value") or many_positional else ""
    many = "commas" if name == "measures" else many or ("list" if "Sequence" in types else "")
    return Argument(
        name,
        _SPELLED.get(name, f"--{name.replace('_', '-')}") if option else metavar,
        "" if kind is bool else metavar,
        kind,
        many,
        required=parameter.default is parameter.empty and name != "settings" and not many_positional,
        meaning=meaning,
    )


def _documented(function: Callable[..., Any]) -> tuple[tuple[str, str], dict[str, str], str]:
    """Returns the first sentence of a docstring and the others, argument -> its meaning for a shell, and the example."""
    parts = re.split(r"^(Args|Raises|Example):\n", inspect.cleandoc(function.__doc__ or ""), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", sections.get("Args", ""), re.MULTILINE)
    summary, _, details = (" ".join(part.split()) for part in parts[0].partition("\n\n"))
    meanings = {name: " ".join(meaning.split()).partition("; in Python")[0] for name, meaning in found}
    return (summary, details), meanings, sections.get("Example", "").strip()


def _meaning(place: str, parameter: str) -> str:
    """Returns the meaning of an argument; what its docstring leaves out is documented by the first verb that has it."""
    places = (place, *_DOCUMENTING)
    return next(meanings[parameter] for one in places if parameter in (meanings := _documented(_function(one))[1]))


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"dmqr.{module}"), name)
    return found
