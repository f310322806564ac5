"""The configs of an ablation's sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from cluster.errors import ConfigError, DmqrError, nearest
from cluster.settings import REQUIRED
from jobs.config.config import Config
from jobs.config.load import problem
from jobs.config.sets import filled


def sets_of(config: Config) -> dict[str, Config]:
    """Returns name -> the config of each set: that of an ablation of it alone, which has the store of all.

    Raises:
        ConfigError: what a set says is invalid.
    """
    return {name: set_config(config, name) for name in config.ablate.sets}


def set_config(config: Config, name: str) -> Config:
    """Returns the config of one set.

    Raises:
        ConfigError: there is no such set, or what it says is invalid.
    """
    if name not in config.ablate.sets:
        raise ConfigError("argument", f"no set {name!r} in ablate.sets{nearest(name, config.ablate.sets)}")
    values = config.model_dump() | config.ablate.sets[name]
    values["ablate"] = filled(values["ablate"] | {"sets": {}}, name)
    values |= {"name": name, "store": config.store_folder}
    try:
        return Config.model_validate(values, context=REQUIRED)
    except ValidationError as error:
        where = f"ablate.sets.{name}"
        raise ConfigError(*problem(where, error)) from error


def own_set(config: Config) -> str:
    """Returns the set that a job of a config alone is of: the first that it names, or else the one called as it is."""
    return _first_set(config) or config.name


def _first_set(config: Config) -> str | None:
    name, said = next(iter(config.ablate.sets.items()), (None, {}))
    return name if said.get("log", {}).get("path", config.log.path) == config.log.path else None


def set_warnings(config: Config) -> tuple[str, ...]:
    """Returns what is to be said of a job that is of the config alone, where that is its first set."""
    name = _first_set(config)
    if name is None:
        return ()
    others = "" if len(config.ablate.sets) == 1 else "; --set ablate.sets=[NAME] chooses another"
    return (f"ablate.sets: this is the set {name} alone, ablate goes over all{others}",)


@contextmanager
def of_set(name: str) -> Iterator[None]:
    """Has the errors of the body say which set they are of."""
    try:
        yield
    except DmqrError as error:
        if not error.line.startswith("ablate.sets."):
            error.line = f"set {name}: {error.line}"
            error.args = (error.code, error.line)
        raise
