"""The loader of a config: a YAML file to a `Config`.

`--set a.b=c` overrides the file, `{date}` in any text is replaced by `--date`, else by yesterday (UTC): a log that is being
written has no whole day of today. Unknown keys are refused, with the nearest known key.
"""

from __future__ import annotations

import datetime
import os
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from cluster.cause import absent, yaml_problem
from cluster.errors import ConfigError, nearest
from cluster.settings import FORM, NO_KIND, NO_PLUGIN, REQUIRED, Kinds, Names, Settings, field_names
from jobs.config.config import MOST_LABEL, NAME, Config
from jobs.log.settings import day

_CODES = {NO_PLUGIN: "plugin"}  # else config-value
_WORDS = {
    "missing": "is missing; add it",
    "model_type": "should hold keys, {value}",
    "dict_type": "should hold keys, {value}",
    "list_type": "should be a list, {value}",
}
Overrides = Sequence[str] | Mapping[str, Any]
ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config
WITHOUT_FILE = "config"  # stands for the file of a config without one: paths and prices.yaml are looked for in this folder
_GIVE = "give a YAML file like configs/quickstart.yaml"


def given_config(
    source: ConfigSource, settings: Mapping[str, Any], date: str | None = None, label: str | None = None
) -> tuple[Config, str]:
    """Returns a checked config, and the path of its file; date and label are as of `load_config`.

    `source`: a YAML file's path, what such a file would hold, or a config. `settings`: overrides, key -> value, like `fuse.k`,
    or `fuse__k` as Python spells keywords.
    """
    overrides = {key.replace("__", "."): _plain(value) for key, value in settings.items()}
    if isinstance(source, str | os.PathLike):
        return load_config(os.fspath(source), overrides, date, label), os.fspath(source)
    if not isinstance(source, Mapping | Config):
        what = type(source).__name__
        raise ConfigError("argument", f"config: is a {what}; give the path of a YAML file, a mapping, or a Config")
    return config_of(_plain(source), WITHOUT_FILE, overrides, date, label), WITHOUT_FILE


def _plain(value: Any) -> Any:
    """Returns a value as YAML would have it, in containers of its own."""
    if isinstance(value, Settings):
        return value.model_dump(exclude_unset=True)  # what is left out may be filled in, as the log's date
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def load_config(path: str, settings: Overrides = (), date: str | None = None, label: str | None = None) -> Config:
    """Reads a config file.

    Args:
        path: the YAML file.
        settings: overrides of the form `a.b=value`, whose values are YAML; or key -> value.
        date: replaces `{date}`, as YYYY-MM-DD; None: yesterday (UTC).
        label: replaces the config's `label`; None: as the config has it.

    Raises:
        ConfigError: the file, an override, the date or the label is invalid.
    """
    config = config_of(_read(path), path, settings, date, label)
    _check_beside(config, Path(path).parent)
    return config


def _check_beside(config: Config, folder: Path) -> None:
    """Refuses a relative path at which nothing is, while it would be right from the config's folder."""
    inputs = [config.log.path] if isinstance(config.log.path, str) else list(config.log.path)
    inputs += [path for corpus in config.corpora.values() for path in corpus.paths]

    def check(names: Any) -> Any:
        for name in [names] if isinstance(names, str) else names:
            beside = folder / name
            if not Path(name).exists() and beside.exists() and (beside.is_file() or name in inputs):
                where = f"{absent(name)}, where relative paths start; the file is beside the config"
                raise ConfigError("config-value", f"{name}: {where}: write {os.path.relpath(beside)}, or start in {folder}")
        return names

    for what in (Names.FILE, Names.TEXT):
        config.with_names(what, check)


def _read(path: str) -> dict[str, Any]:
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "config-file", f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; {_GIVE}"
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError("config-file", f"{path}: not YAML: {yaml_problem(error)}; correct it there") from error
    if not isinstance(values, dict):
        raise ConfigError("config-file", f"{path}: holds no keys; see configs/quickstart.yaml for an example")
    return values


def config_of(
    values: dict[str, Any], where: str, settings: Overrides = (), date: str | None = None, label: str | None = None
) -> Config:
    """Returns the config of a mapping, which is changed; `where` begins messages, the others are as of `load_config`."""
    _override(values, settings)
    try:
        filled = day(date or yesterday())
    except ValueError as error:
        raise ConfigError("argument", f"--date {error}") from error
    if label is not None:
        if re.fullmatch(NAME, label) is None or len(label) > MOST_LABEL:
            remedy = f"use up to {MOST_LABEL} letters, digits, dots, dashes and underscores"
            raise ConfigError("argument", f"--label {label!r}: cannot be part of a folder's name; {remedy}")
        values["label"] = label
    log = values.get("log")
    if isinstance(log, dict) and "{date}" in str(log.get("path")):
        log.setdefault("date", "{date}")
    return _checked(_fill(values, filled), where)


def changed_config(config: Config, settings: Overrides, where: str) -> Config:
    """Returns a config with overrides, as of `load_config`; `where` begins messages."""
    values = config.model_dump()
    _override(values, settings)
    return _checked(values, where)


def _checked(values: dict[str, Any], where: str) -> Config:
    try:
        return Config.model_validate(values, context=REQUIRED)
    except ValidationError as error:
        raise ConfigError(*problem(where, error)) from error


def yesterday() -> str:
    """Returns the default of `{date}`, the last whole day in UTC, as YYYY-MM-DD."""
    return (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)).isoformat()


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, of which PyYAML silently takes the last."""


def _unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key is a list or a mapping", key_node.start_mark)
        merged = key_node.tag == "tag:yaml.org,2002:merge"  # keys merged by `<<` may be overridden
        if key_node.value in seen and not merged:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key_node.value!r} appears twice", key_node.start_mark
            )
        seen.add(key_node.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_keys)


def _override(values: dict[str, Any], settings: Overrides) -> None:
    if isinstance(settings, Mapping):
        given = [(key, value, key) for key, value in settings.items()]
    else:
        given = [(name, value, f"--set {name}") for name, value in map(given_setting, settings)]
    for name, value, where in given:
        keys, section = name.split("."), values
        if not all(keys):
            raise ConfigError("argument", f"{where}: is not a key of a config; write it like fuse.k")
        for depth, key in enumerate(keys[:-1], start=1):
            if section.get(key) is None:
                section[key] = {}
            section = section[key]
            if not isinstance(section, dict):
                whole = ".".join(keys[:depth])
                raise ConfigError("argument", f"{where}: {whole} is a value, it has no keys; set {whole} itself")
        section[keys[-1]] = value


def given_setting(setting: str) -> tuple[str, Any]:
    """Returns key and value of `--set a.b=value`."""
    name, equals, text = setting.partition("=")
    if not equals or not all(name.strip().split(".")):
        raise ConfigError("argument", f"--set {setting!r} is not of the form a.b=value; write it like fuse.k=60")
    try:
        return name.strip(), yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(
            "argument", f"--set {name}: the value is not YAML: {yaml_problem(error)}; put it in quotes"
        ) from error


def _fill(value: Any, date: str) -> Any:
    if isinstance(value, str):
        return value.replace("{date}", date)
    if isinstance(value, dict):
        return {key: _fill(item, date) for key, item in value.items()}
    return [_fill(item, date) for item in value] if isinstance(value, list) else value


def problem(path: str, error: ValidationError) -> tuple[str, str]:
    """Returns the error code and the message, which begins with `path`, of the first problem, with the keys of the others."""
    problems = error.errors()
    unknown = [entry for entry in problems if entry["type"] == "extra_forbidden"]  # often the cause of a missing key
    first = (unknown or problems)[0]
    others = dict.fromkeys(".".join(_place(entry["loc"])[0]) for entry in problems if entry is not first)
    (shown, model), kind, value = _place(first["loc"]), first["type"], f"found {first['input']!r}"
    if kind in ("union_tag_not_found", "union_tag_invalid", NO_KIND, NO_PLUGIN):
        shown.append("kind")
    if kind == "extra_forbidden":
        known = list(_place(first["loc"][:-1])[1].model_fields)
        what = f"unknown key{nearest(shown[-1], known)}"
    elif kind == "union_tag_not_found":
        what = "is missing (known: " + ", ".join(entry for entry in model if ":" not in entry) + ")"
    elif kind == "union_tag_invalid":
        what = f"no kind {first['ctx']['tag']!r}{nearest(str(first['ctx']['tag']), list(model))}"
    elif kind == "too_short":
        what = f"should list at least {first['ctx']['min_length']}, {value}; add it, or remove the key"
    elif kind in _WORDS:
        what = _WORDS[kind].format(value=value)
    elif kind in ("value_error", NO_KIND, NO_PLUGIN):
        what = first["msg"].removeprefix("Value error, ")
    else:
        what = f"{first['msg'][0].lower()}{first['msg'][1:]}, {value}"
    where = ".".join(shown)
    others.pop(where, None)
    more = f" (also wrong or missing: {', '.join(others)})" if others else ""
    return _CODES.get(kind, "config-value"), f"{path}: {where}: {what}{more}" if where else f"{path}: {what}{more}"


def _place(location: typing.Sequence[Any]) -> tuple[list[str], Any]:
    """Returns the keys that lead to a location of the config, and the model or the choice of models found there.

    The tags by which pydantic chose a model are left out of the keys.
    """
    shown: list[str] = []
    field = Field(Config)
    for part in location:
        if str(part).startswith(FORM) or part == "[key]":
            continue
        if isinstance(field.model, dict) and not field.is_named:
            field = Field(field.model[part])
            continue
        shown.append(str(part))
        inner = field.inside(str(part))
        field = field if inner.model is None else inner
    return shown, field.model


class Field(typing.NamedTuple):
    """A place in a config."""

    model: Any  # or kind -> model; None: the key holds a value
    is_named: bool = False  # whether names that the user has chosen lead to such a model
    names: Names | None = None  # what a text there names

    def inside(self, key: str, kind: str | None = None) -> Field:
        """Returns the place of a key: a field of the model, or a chosen name.

        `kind` is of the model, where there are several; None: it is missing, and what all kinds with the field share holds.
        """
        if self.is_named and (isinstance(self.model, dict) or key not in self.model.model_fields):
            return Field(self.model)
        models: list[Any] = [self.model] if self.model else []
        if isinstance(self.model, dict):
            every = [model for model in self.model.values() if key in model.model_fields]
            usual = [model for model in every if not model.model_fields["kind"].is_required()]  # where no kind is given
            named = [model for model in every if model is self.model.get(str(kind))]  # an arm may change the kind apart
            models = named or usual or every
        fields = [_field(model, key) for model in models if key in model.model_fields]
        return fields[0] if fields and fields.count(fields[0]) == len(fields) else Field(None)


def _field(model: type[BaseModel], key: str) -> Field:
    annotation, metadata = model.model_fields[key].annotation, model.model_fields[key].metadata
    kinds = next((entry.models() for entry in metadata if isinstance(entry, Kinds)), {})  # of a field that may be nothing else
    inner = kinds if len(kinds) > 1 else _model_in(annotation)
    forms = [annotation, *(typing.get_args(form)[0] for form in typing.get_args(annotation) if typing.get_args(form))]
    is_named = inner is not None and any(typing.get_origin(form) is dict for form in forms)
    return Field(inner, is_named, field_names(model).get(key))


def _model_in(annotation: Any) -> Any:
    """Returns the config model inside `X | None` or `dict[str, X]`; several are returned as a dict by `kind`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    parts = typing.get_args(annotation)
    if (kinds := next((part for part in parts if isinstance(part, Kinds)), None)) is not None:
        return kinds.models()
    models: list[Any] = [model for part in parts if (model := _model_in(part)) is not None]
    if any(model is not models[0] for model in models):
        return {typing.get_args(model.model_fields["kind"].annotation)[0]: model for model in models}
    return models[0] if models else None
