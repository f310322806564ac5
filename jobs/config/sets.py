"""The data sets of `ablate.sets`, as a config's values say them: a set is the config with what differs, and `{set}` filled in.

When a config is read, each set gets its sections whole: what it says, over what the config says. Later readers take them as
they stand (`jobs/config/set_configs.py`). The config itself may lack what every set says; then it is completed by the first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.errors import ConfigError, nearest

SETS = "ablate.sets"
SET = "{set}"
"""Stands for the name of a set in texts of the config."""
SAID = (
    "log", "corpus", "evaluate.qrels", "evaluate.key", "evaluate.answers", "judge.calibration", "retrieve.retrievers",
    "retrieve.filters", "rewrite.engine", "rewrite.language",
)  # fmt: skip
"""Keys of the config that a set may change: what is asked, what is searched, and what it is measured by."""
_SHORT = {"qrels": "evaluate.qrels", "answers": "evaluate.answers", "key": "evaluate.key"}
_INDEX = "index"
_Values = dict[str, Any]


def complete_sets(values: _Values, where: str) -> None:
    """Gives each set of a config's values its whole sections, and the config what it lacks and every set says.

    What is no mapping where one belongs is left as it is, for the models to refuse.

    Args:
        values: of a whole config; changed.
        where: begins messages.

    Raises:
        ConfigError: a set changes what is the same in all sets, or names a retriever that the config lacks.
    """
    ablate = values.get("ablate")
    sets = ablate.get("sets") if isinstance(ablate, dict) else None
    if isinstance(sets, list) and all(isinstance(one, str) for one in sets):
        sets = dict.fromkeys(sets)
    if not isinstance(sets, dict) or not all(one is None or isinstance(one, dict) for one in sets.values()):
        return
    changes = {str(name): _changes(values, one or {}, f"{where}: ablate.sets.{name}") for name, one in sets.items()}
    own = {key: one for key, one in values.items() if key != "ablate"}
    for name, one in changes.items():
        _check(one, filled(own, name), f"{where}: ablate.sets.{name}")
    touched = {key for one in changes.values() for key in one} | {key for key in _sections() if SET in str(own.get(key))}
    whole = {
        name: {key: _merged(own.get(key), one.get(key)) for key in touched if own.get(key) or one.get(key)}
        for name, one in changes.items()
    }
    for name, sections in whole.items():
        whole[name] = filled(sections, name)
        log = whole[name].get("log")
        if isinstance(log, dict) and "{date}" in str(log.get("path")):
            log.setdefault("date", "{date}")
    assert isinstance(ablate, dict)
    ablate["sets"] = whole
    if whole:
        first = next(iter(changes))
        for key in touched:
            if SET in str(own.get(key)):
                values[key] = filled(own[key], first)
        for path in _leaves(changes[first]):
            if all(_at(one, path) is not None for one in changes.values()) and not _of_another_kind(
                values, changes[first], path
            ):
                _borrow(values, path, _at(changes[first], path), first)


def chosen_sets(sets: Any, said: Any, where: str) -> Any:
    """Returns what an override makes of `ablate.sets`: a list of names chooses among those there are, each with what it says.

    Raises:
        ConfigError: a name is none of them.
    """
    if not isinstance(sets, dict) or not isinstance(said, list):
        return said
    by_name = {str(name): one for name, one in sets.items()}
    for name in map(str, said):
        if name not in by_name:
            raise ConfigError("argument", f"{where}: no set {name!r}{nearest(name, by_name)}")
    return {str(name): by_name[str(name)] for name in said}


def without_common(values: _Values, overrides: Mapping[str, Any], where: str) -> None:
    """Takes out of whole sets what overrides of the config replace, so that it is replaced in the sets, too.

    A config that was read has each set's sections whole, and does not know which of it the set has said itself. What all sets
    have as the config has it is the config's.

    Args:
        values: of a config that was read; changed.
        overrides: key in dotted form -> value.
        where: begins messages.

    Raises:
        ConfigError: sets have their own values of such a key.
    """
    sets = (values.get("ablate") or {}).get("sets")
    if not isinstance(sets, dict):
        return
    for key in overrides:
        path = tuple(key.split("."))
        if path[0] not in _sections():
            continue
        own = _at(values, path)
        apart = [name for name, one in sets.items() if path[0] in one and _at(one, path) != own]
        if apart:
            what = f"{key}: sets have values of their own ({', '.join(apart)})"
            raise ConfigError("argument", f"{where}: {what}; override it in the config's file or mapping, or in ablate.sets")
        for one in sets.values():
            _remove(one, path)


def _remove(values: Any, path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        values = values.get(key) if isinstance(values, dict) else None
    if isinstance(values, dict):
        values.pop(path[-1], None)


def filled(value: Any, name: str) -> Any:
    """Returns values with the name of a set in place of `{set}`, in keys, too."""
    if isinstance(value, str):
        return value.replace(SET, name)
    if isinstance(value, dict):
        return {filled(key, name): filled(one, name) for key, one in value.items()}
    return [filled(one, name) for one in value] if isinstance(value, list) else value


def _sections() -> list[str]:
    return list(dict.fromkeys(key.partition(".")[0] for key in SAID))


def _changes(values: _Values, said: Mapping[str, Any], where: str) -> _Values:
    """Returns what a set says, as sections of a config: short and dotted keys are spelled out."""
    found: _Values = {}
    for key, value in copy.deepcopy(dict(said)).items():
        if key == _INDEX:
            for name, place in _indexes(values, value, where).items():
                _put(found, ("retrieve", "retrievers", name, _INDEX), place)
        elif key in ("log", "corpus") and not isinstance(value, dict):
            _put(found, (key, "path"), value)
        else:
            _put(found, tuple(_SHORT.get(key, key).split(".")), value)
    return found


def _indexes(values: _Values, said: Any, where: str) -> dict[str, Any]:
    """Returns retriever -> index: of each that is named, or one of all that have an index in one place."""
    retrievers = (values.get("retrieve") or {}).get("retrievers") or {}
    if not isinstance(said, dict):
        return {name: said for name, one in retrievers.items() if isinstance(one, dict) and one.get("kind") != "web"}
    for name in said:
        if name not in retrievers:
            raise ConfigError("config-value", f"{where}.index: no retriever {name!r}{nearest(str(name), retrievers)}")
    return said


def _check(changes: _Values, own: _Values, where: str) -> None:
    """Checks that a set says no more than what a set may, but for what the config says, too: a config that is sent is whole."""
    for path in _leaves(changes):
        key = ".".join(path)
        if _at(changes, path) == _at(own, path) is not None:
            continue
        if not any(key == one or key.startswith(f"{one}.") for one in SAID):
            near = nearest(key, [*_SHORT, _INDEX, *SAID])
            raise ConfigError(
                "config-key",
                f"{where}: {key}: no set says this; what is alike in all stands beside ablate, or in an arm{near}",
            )


def _leaves(values: Any, *above: str) -> Iterator[tuple[str, ...]]:
    """Yields the keys that lead to each value that is no mapping, or an empty one."""
    if isinstance(values, dict) and (values or not above):
        for key, value in values.items():
            yield from _leaves(value, *above, str(key))
    else:
        yield above


def _put(values: _Values, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(values.get(key), dict):
            values[key] = {}
        values = values[key]
    values[path[-1]] = _merged(values.get(path[-1]), value)


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _of_another_kind(values: _Values, said: _Values, path: tuple[str, ...]) -> bool:
    """Returns whether the config has a section on a path in another kind than a set says."""
    for place in range(1, len(path)):
        own, other = _at(values, path[:place]), _at(said, path[:place])
        kinds = [one.get("kind") if isinstance(one, dict) else None for one in (own, other)]
        if None not in kinds and kinds[0] != kinds[1]:
            return True
    return False


def _borrow(values: _Values, path: tuple[str, ...], value: Any, name: str) -> None:
    """Sets a value that a config lacks."""
    inner: Any = values
    for key in path[:-1]:
        if inner.get(key) is None:
            inner[key] = {}
        inner = inner[key]
        if not isinstance(inner, dict):
            return
    inner.setdefault(path[-1], filled(copy.deepcopy(value), name))


def _merged(own: Any, said: Any) -> Any:
    """Returns a section of the config with what a set says over it; one of another kind replaces it."""
    if said is None or not (isinstance(own, dict) and isinstance(said, dict)):
        return copy.deepcopy(own if said is None else said)
    if "kind" in said and said["kind"] != own.get("kind"):
        return copy.deepcopy(said)
    return {key: _merged(own.get(key), said.get(key)) for key in (own | said)}
