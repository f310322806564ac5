"""The one door from a YAML file to a config object.

`--set a.b=c` overrides come on top of the file, `{date}` in any text is filled from `--date`; unknown keys are refused by
name with the nearest.
"""

from __future__ import annotations

import datetime
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from jobs.config import Config
from jobs.part import ConfigError, nearest

_GIVE = "give a YAML file like configs/quickstart.yaml"


def load_config(path: str, settings: list[str] | None = None, date: str | None = None) -> Config:
    """Read `path`, apply `a.b=value` settings (values are YAML), fill `{date}`; ConfigError in one line."""
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; {_GIVE}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {_where(error)}; correct it there") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds no keys; see configs/quickstart.yaml for an example")
    for setting in settings or []:
        _set(values, setting)
    day = date or today()
    try:
        datetime.datetime.strptime(day, "%Y-%m-%d")
        valid = len(day) == 10
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"--date {day!r} is not a date; write it as 2026-01-31")
    try:
        return Config.model_validate(_fill(values, day))
    except ValidationError as error:
        raise ConfigError(f"{path}: {_one_line(error)}") from error


def _where(error: yaml.YAMLError) -> str:
    """`line N, column M: problem`: PyYAML's own words are several lines and name a "<unicode string>"."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    said = " ".join(str(problem or error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {said}" if mark is not None else said


def today() -> str:
    """What `{date}` stands for where nothing is said."""
    return datetime.date.today().isoformat()


class _Loader(yaml.SafeLoader):
    """YAML in which a key may stand once only (PyYAML would silently take the last)."""


def _unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key is a list or a mapping", key_node.start_mark)
        merged = key_node.tag == "tag:yaml.org,2002:merge"  # what `<<` brings may be overridden
        if key_node.value in seen and not merged:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key_node.value!r} stands twice", key_node.start_mark)
        seen.add(key_node.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_keys)


def _set(values: dict[str, Any], setting: str) -> None:
    name, equals, text = setting.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {setting!r} is not of the form a.b=value; write it like fuse.k=60")
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: the value is not YAML: {_where(error)}; put it in quotes") from error
    for depth, key in enumerate(keys[:-1]):
        if values.get(key) is None:
            values[key] = {}
        values = values[key]
        if not isinstance(values, dict):
            whole = ".".join(keys[: depth + 1])
            raise ConfigError(f"--set {name}: {whole} is a value, it has no keys; set {whole} itself")
    values[keys[-1]] = value


def _fill(value: Any, date: str) -> Any:
    if isinstance(value, str):
        return value.replace("{date}", date)
    if isinstance(value, dict):
        return {key: _fill(item, date) for key, item in value.items()}
    return [_fill(item, date) for item in value] if isinstance(value, list) else value


def _one_line(error: ValidationError) -> str:
    problems = error.errors()
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])  # often why another is missing
    shown, model = _place(first["loc"])
    if first["type"] == "extra_forbidden":
        what = f"unknown key{nearest(shown[-1], list(_place(first['loc'][:-1])[1].model_fields))}"
    elif first["type"] == "missing":
        what = "is missing; add it"
    elif first["type"] == "union_tag_not_found":
        shown.append("kind")
        what = "is missing (known: " + ", ".join(model) + ")"
    elif first["type"] == "union_tag_invalid":
        shown.append("kind")
        kind = str(first["ctx"]["tag"])
        what = f"no kind {kind!r}{nearest(kind, list(model))}"
    else:
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] != "value_error":
            what = f"{what[0].lower()}{what[1:]}, found {first['input']!r}"
    where = ".".join(shown)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {what}{more}" if where else f"{what}{more}"


def _place(location: typing.Sequence[Any]) -> tuple[list[str], Any]:
    """A location as the config's author sees it (without the kinds by which a model was chosen), and what stands there: a
    model, or the models to choose from."""
    shown: list[str] = []
    here: Any = Config
    for part in location:
        if isinstance(here, dict):  # of models by kind
            here = here[part]
            continue
        shown.append(str(part))
        field = here.model_fields.get(part) if isinstance(here, type) and issubclass(here, BaseModel) else None
        if field is not None:
            here = _model_in(field.annotation) or here
            if typing.get_origin(field.annotation) is dict and here is not Config:
                here = _Named(here)
        elif isinstance(here, _Named):  # a name of the user's, such as that of a retriever
            here = here.model
    return shown, here


class _Named(typing.NamedTuple):
    """A model, or the models to choose from, under names of the user's own."""

    model: Any


def _model_in(annotation: Any) -> Any:
    """The config model inside `X | None` or `dict[str, X]`; of several, the models by their `kind`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found: list[Any] = [model for part in typing.get_args(annotation) if (model := _model_in(part)) is not None]
    if len(found) > 1:
        return {typing.get_args(model.model_fields["kind"].annotation)[0]: model for model in found}
    return found[0] if found else None
