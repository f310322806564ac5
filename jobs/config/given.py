"""A config as a program gives it: the path of its file, a mapping, or the model itself; and overrides as Python values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cluster.errors import ConfigError
from cluster.settings import Settings
from jobs.config.config import Config
from jobs.config.load import config_of, load_config

ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config
WITHOUT_FILE = "config"
"""Stands for the file of a config that has none: paths and prices.yaml are looked for in the current folder."""


def file_of(source: ConfigSource) -> str:
    """Returns the path of a config's file."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else WITHOUT_FILE


def given_config(
    source: ConfigSource, settings: Mapping[str, Any], date: str | None = None, label: str | None = None
) -> Config:
    """Returns the checked config.

    Args:
        source: a YAML file's path, what such a file would hold, or a config.
        settings: overrides: key, like `fuse.k`, or `fuse__k` as Python spells keywords -> value.
        date: replaces `{date}`, as YYYY-MM-DD; None: yesterday (UTC).
        label: replaces the config's `label`; None: as the config has it.
    """
    overrides = {key.replace("__", "."): _plain(value) for key, value in settings.items()}
    if isinstance(source, str | os.PathLike):
        return load_config(os.fspath(source), overrides, date, label)
    if not isinstance(source, Mapping | Config):
        found = type(source).__name__
        raise ConfigError("argument", f"config: is a {found}; give the path of a YAML file, a mapping, or a Config")
    return config_of(_plain(source), WITHOUT_FILE, overrides, date, label)


def _plain(value: Any) -> Any:
    """Returns a value as YAML would have it, in containers of its own."""
    if isinstance(value, Settings):
        return value.model_dump(exclude_unset=True)  # what is left out may be filled in, as the log's date
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
