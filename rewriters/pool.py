"""The pool: strategies by their names, read from YAML.

A strategy is named by a file of `strategies/` (`rag_fusion`), by an entry point of an installed package, whose value is the
package that has `NAME.yaml`, or by the path of a file of the user (`./medical.yaml`). With
parameters, `{rag_fusion: {n: 2}}`, it is another strategy with a name of its own, `rag_fusion(n=2)`, which may stand beside
the first. A parameter is a field of the strategy, a decoding setting, a variable that the file declares, or one of its
variants (`{decompose: {interpret: true}}`).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from cluster.errors import RewriterError, nearest
from cluster.plugins import PluginError, entry_points, imported
from cluster.settings import REQUIRED
from rewriters.files import Read, checked, prompt, read_local, read_yaml, take_variables
from rewriters.reading.answer import label_key
from rewriters.settings import DecodingSettings, is_path
from rewriters.strategy import CONTEXT, PLAIN_NAME, RESERVED, Marks, Strategy, Words, plain_name, render, variables

Entry = str | Mapping[str, Mapping[str, Any]]  # a strategy as the config names it: name, path, or one of them with parameters

GROUP = "dmqr.strategies"  # of entry points
OF_THE_QUERY = "the language of the query"
CONTEXT_BLOCK = prompt("context") + "\n\n"
_FOLDER = Path(__file__).parent / "strategies"
_FIELDS = (
    "search_as", "several_lines", "include_original", "as_one", "weight", "position_weights", "depth", "score_floor",
    "max_chars", "min_chars", "words", "banned", "any_language", "language", "question", "fallback", "engine", "n", "preserve",
)  # fmt: skip
SET_BY_POOL = ("name", "base", "own_file")  # fields of a strategy that its file cannot have
_NAMELESS = ("engine", "name")  # parameters that do not stand in the name


class Named(NamedTuple):
    """An entry taken apart: the file's name or path, and the parameters."""

    source: str
    parameters: Mapping[str, Any]

    @property
    def stem(self) -> str:
        """Returns the strategy's name without parameters."""
        return Path(self.source).stem if is_path(self.source) else self.source

    @property
    def name(self) -> str:
        """Returns the strategy's name: that of the file, with the parameters in alphabetic order."""
        if "name" in self.parameters:
            return str(self.parameters["name"])
        shown = [
            f"{key}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}"
            for key, value in sorted(self.parameters.items())
            if key not in _NAMELESS
        ]
        return f"{self.stem}({','.join(shown)})" if shown else self.stem


def named(entry: Entry) -> Named:
    """Returns an entry of the config taken apart. Raises ValueError if it is no name or path, alone or with parameters."""
    if isinstance(entry, str):
        return Named(entry, {})
    if isinstance(entry, Mapping) and len(entry) == 1:
        (source, parameters), *_ = entry.items()
        if isinstance(parameters, Mapping) and parameters:
            return Named(str(source), parameters)
    raise ValueError(f"should be a name, a path or {{name: {{parameter: value}}}}, found {entry!r}")


@cache
def shipped() -> tuple[str, ...]:
    """Returns the sorted names of the built-in strategies."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def labelled() -> tuple[Strategy, ...]:
    """Returns the strategies whose labels models write unasked, those of DMQR-RAG.

    They are the same for every pool, so that how an answer is read does not depend on what else is in the pool.
    """
    return tuple(one for one in map(load, shipped()) if one.joint)


def load_pool(
    entries: Sequence[Entry], language: str | None = None, context: bool = False, read: Read = read_local
) -> tuple[Strategy, ...]:
    """Returns the strategies of the config's `rewrite.strategies`, in their order.

    Rewrites are written in `language`; None: the query's. Where `context`, queries have earlier turns, which every prompt then
    shows. `read` returns the text of a file of the user; raises OSError or UnicodeDecodeError.

    Raises:
        RewriterError: A name is unknown or listed twice, a file or a parameter is wrong, or two strategies share a label.
    """
    pool = tuple(load(entry, language, context, read) for entry in entries)
    owners: dict[str, Strategy] = {}
    for strategy in pool:
        if [one.name for one in pool].count(strategy.name) > 1:
            raise RewriterError("strategy", f"strategy {strategy.name!r} is listed twice; list it once, or give one a name")
        for word in strategy.names:
            owner = owners.setdefault(label_key(word), strategy)
            if owner.base != strategy.base:
                line = f"strategies {owner.name!r} and {strategy.name!r} both answer to {word!r}; change one"
                raise RewriterError("strategy", line)
    return pool


def load(entry: Entry, language: str | None = None, context: bool = False, read: Read = read_local) -> Strategy:
    """Returns one strategy; see `load_pool`. Raises RewriterError if it is unknown, or its file or a parameter is wrong."""
    wanted = named(entry)
    fields, where = _file(wanted, read)
    declared, variants = take_variables("strategy", where, fields), fields.pop("variants", {})
    for key in declared.keys() & {"query", CONTEXT, "n", "language"}:
        raise RewriterError("strategy", f"{where}: variables: {key} is reserved; choose another name")
    if not isinstance(variants, dict) or not all(isinstance(one, dict) for one in variants.values()):
        raise RewriterError("strategy", f"{where}: variants: should hold names with the fields that they replace")
    for key in variants.keys() & wanted.parameters.keys():
        if not isinstance(wanted.parameters[key], bool):
            line = f"strategy {wanted.stem!r}: {key} is true or false, found {wanted.parameters[key]!r}"
            raise RewriterError("strategy", line)
        fields |= variants[key] if wanted.parameters[key] else {}
    decoding = dict(fields.get("decoding") or {})
    for key, value in wanted.parameters.items():
        if key in variants:
            continue
        if key in declared:
            declared[key] = str(value)
        elif key in DecodingSettings.model_fields:
            decoding[key] = value
        elif key in _FIELDS:
            fields[key] = value
        elif key != "name":
            known = [*_FIELDS, *DecodingSettings.model_fields, *declared, *variants, "name"]
            raise RewriterError("strategy", f"strategy {wanted.stem!r}: no parameter {key!r}{nearest(key, known)}")
    if "name" in wanted.parameters and not plain_name(wanted.name):
        line = f"strategy {wanted.stem!r}: name {wanted.name!r} must be {PLAIN_NAME}, and none of {', '.join(sorted(RESERVED))}"
        raise RewriterError("strategy", line)
    fields["decoding"] = decoding
    if fields.get("prompt_as") != "text" and isinstance(fields.get("prompt"), str):
        fields["prompt"] = fields["prompt"].rstrip()  # `prompt: |` ends with a line break
    set_here = {"name": wanted.name, "base": wanted.stem, "own_file": is_path(wanted.source)}
    with checked("strategy", where, _keys):
        strategy = Strategy.model_validate(fields | set_here, context=REQUIRED)
    if strategy.language is not None and "language" not in variables(strategy.prompt):
        why = f"has no {{language}}, and language: {strategy.language} needs it"
        raise RewriterError("strategy", f"{where}: prompt {why}; put {{language}} where the prompt says how to write")
    told = strategy.language or language
    prompt = render(strategy.prompt, declared | {"n": str(strategy.n), "language": told or OF_THE_QUERY})
    if context and strategy.prompt_as == "message":
        prompt = with_context(prompt)
    if not context and CONTEXT in variables(prompt):
        raise RewriterError("strategy", f"{where}: prompt has {{context}}, and log.context_column is not set; set it")
    changed: dict[str, Any] = {"prompt": prompt} | ({"any_language": True} if told else {})
    if strategy.language == language:
        changed["language"] = None  # the common one
    return strategy.model_copy(update=changed)


def with_context(prompt: str) -> str:
    """Returns a prompt that shows the earlier turns: before its last line, unless it has them already."""
    if CONTEXT in variables(prompt):
        return prompt
    before, newline, last = prompt.rpartition("\n")
    return f"{before}{newline}{CONTEXT_BLOCK}{last}"


def _file(wanted: Named, read: Read) -> tuple[dict[str, Any], str]:
    """Returns the fields of a strategy's file, and how errors name the file."""
    if is_path(wanted.source):
        where = path = wanted.source
    else:
        name, is_shipped = wanted.source, wanted.source in shipped()
        packaged = {} if is_shipped else entry_points(GROUP)  # reads the metadata of all installed packages
        if name in RESERVED or not (is_shipped or name in packaged):
            raise RewriterError("strategy", f"unknown strategy {name!r}{nearest(name, [*shipped(), *packaged])}")
        try:
            folder = _FOLDER if is_shipped else Path(str(files(imported(packaged[name]))))
        except PluginError as error:
            raise RewriterError("plugin", f"strategy {name!r}: {error}") from error
        where, path, read = f"strategies/{name}.yaml", str(folder / f"{name}.yaml"), read_local
    fields = read_yaml("strategy", where, path, read, "correct the path, or the file", "the fields of a strategy")
    for key in SET_BY_POOL:
        if key in fields:
            raise RewriterError("strategy", f"{where}: {key} is not a field of a file, whose name is the strategy's; remove it")
    return fields, where


def _keys(path: Sequence[Any]) -> Collection[str]:
    """Returns the keys that may stand at a place of a file; none where that is a model of another file's."""
    if path:
        inner: dict[str, type[BaseModel]] = {"words": Words, "marks": Marks, "decoding": DecodingSettings}
        return list(inner[path[0]].model_fields) if path[0] in inner else ()
    return [*(key for key in Strategy.model_fields if key not in SET_BY_POOL), "variables", "variants"]
