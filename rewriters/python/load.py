"""From the name of a strategy's code in a config to the strategy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.errors import RewriterError, nearest
from cluster.plugins.code import PluginError
from cluster.plugins.modules import own_errors
from cluster.plugins.references import entry_points, names_class, plugin
from rewriters.engines.python.settings import PythonSettings
from rewriters.python.strategy import PythonStrategy
from rewriters.settings import is_path
from rewriters.strategy import PLAIN_NAME, RESERVED, Strategy, plain_name

GROUP = "dmqr.strategies"
"""Of entry points."""
FIELDS = (
    "search_as", "include_original", "as_one", "weight", "position_weights", "depth", "score_floor", "max_chars", "words",
    "banned", "n", "preserve",
)  # fmt: skip
"""Fields of a strategy that a config may give beside the code's own."""
_OF_CLASS = (*FIELDS, "label", "order")


def is_code(source: str) -> bool:
    """Returns whether the name of a strategy is that of code: `file.py:Class`, `module:Class` or an entry point."""
    return names_class(source) or (not (is_path(source) or source in house()) and source in entry_points(GROUP))


def may_be_code(source: str) -> bool:
    """Returns whether the name of a strategy is that of code, or may be an entry point of a package that is not here."""
    return names_class(source) or not (is_path(source) or source in house())


@cache
def house() -> frozenset[str]:
    """Returns the names of the built-in strategies, which no entry point can take."""
    return frozenset(path.stem for path in (Path(__file__).parents[1] / "strategies").glob("*.yaml"))


def code_name(source: str) -> str:
    """Returns the strategy's name by that of its code: `./rules.py:LongTail` is long_tail, an entry point its own."""
    made = source.rpartition(":")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", made).lower() if names_class(source) else source


def code_class(source: str) -> type[PythonStrategy]:
    """Returns the class of a strategy that is code.

    Raises:
        RewriterError: There is no such code, or it is no strategy.
    """
    wanted = "a strategy: a class that derives rewriters.python.strategy.PythonStrategy"
    try:
        made: type[PythonStrategy] = plugin(source, GROUP, _fits, wanted)
    except PluginError as error:
        raise RewriterError("strategy", str(error)) from error
    return made


def load_code(source: str, name: str, parameters: Mapping[str, Any]) -> Strategy:
    """Returns a strategy that is code, under a name.

    Raises:
        RewriterError: There is no such code, it is no strategy, or it has no such parameter.
        ValidationError: The value of a parameter or of one of the class's fields is wrong.
    """
    made = code_class(source)
    own, where = list(made.model_fields), f"strategy {code_name(source)!r}"
    for key in made.fields:
        if key not in _OF_CLASS:
            raise RewriterError("strategy", f"{where}: fields of its class: no field {key!r}{nearest(key, _OF_CLASS)}")
    for key in parameters:
        if key not in (known := (*own, *FIELDS, "name")):
            raise RewriterError("strategy", f"{where}: no parameter {key!r}{nearest(key, known)}")
    for key in own:
        if key in (*_OF_CLASS, "name"):
            raise RewriterError("strategy", f"{where}: its class has a field {key!r}, which every strategy has; rename it")
    if not plain_name(code_name(source)) or ("name" in parameters and not _plainly_named(name)):
        line = f"{where}: its name {name!r} must be {PLAIN_NAME}, and none of {', '.join(sorted(RESERVED))}"
        raise RewriterError("strategy", line)
    with own_errors(made, f"{made.__name__} cannot be made of these parameters", RewriterError, but=(ValidationError,)):
        code = PythonSettings.of(made.model_validate({key: value for key, value in parameters.items() if key in own}))
    fields = {"label": made.__name__, **made.fields, **{key: value for key, value in parameters.items() if key in FIELDS}}
    prompt = "".join(f"{{{column}}}\n" for column in made.columns) + "{query}"
    set_here = {"name": name, "base": code_name(source), "prompt": prompt, "output": "array", "own_file": True}
    strategy = Strategy.model_validate(fields | set_here)
    return strategy.model_copy(update={"engine": code})


def _plainly_named(name: str) -> bool:
    """Returns whether a name is plain, or plain with parameters, as a submitted config has that of code that is elsewhere."""
    stem, begins, parameters = name.partition("(")
    return plain_name(stem) and (not begins or parameters.endswith(")"))


def _fits(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, PythonStrategy) and found is not PythonStrategy
