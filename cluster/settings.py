"""What all settings have in common: frozen models whose fields say what they name, and kinds that are imported when needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from importlib import import_module
from typing import Annotated, Any, Self, Union

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True)

FORM = "@"
"""Prefix of the tags of a union's members that are told apart by their form; they are no part of a key of the config."""
NOT_IDENTITY = Field(json_schema_extra={"identity": False})
"""Marks a field that is no part of a run's fingerprint (`jobs/job/keys.py`)."""

DURATION = r"^[1-9][0-9]*[mhdw]$"
"""A pattern of durations, in minutes, hours, days or weeks: `30m`, `12h`, `7d`, `4w`."""
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_seconds(words: str) -> float:
    """Returns the seconds of a duration that matches `DURATION`."""
    return float(words[:-1]) * _SECONDS[words[-1]]


class Names(Enum):
    """What the text of a field names; stands in the field's annotation."""

    FILE = "file"
    """A file or folder, here or on S3."""
    TEXT = "text"
    """A small file of text, here or on S3, of which a submitted job is sent a copy."""
    MODEL = "model"
    """A folder of weights, or a name of a hub."""
    KEY = "key"
    """A file with a key, on every node; it is never sent."""
    STRATEGIES = "strategies"
    """Strategies, of which some are paths of files of text."""
    VARIABLE = "variable"
    """An environment variable."""
    ADDRESS = "address"
    """The address of a server of a model."""


class Settings(BaseModel):
    """A section of a config."""

    model_config = FROZEN

    def names(self) -> dict[str, Names]:
        """Returns what its own fields name: field -> what; without those that mean nothing beside its other fields."""
        return field_names(type(self))

    def named(self, *at: str) -> Iterator[tuple[str, Names, str]]:
        """Yields key, what it names, and the name, of all fields that are set, inner ones included; keys begin with `at`."""
        for field, what in self.names().items():
            value = getattr(self, field)
            yield from ((".".join((*at, field)), what, one) for one in ([value] if isinstance(value, str) else value or ()))
        for keys, inner in self._inner():
            yield from inner.named(*at, *keys)

    def with_names(self, what: Names, change: Callable[[str], str]) -> Self:
        """Returns a copy in which `change` has replaced the names of one sort, inner sections included."""
        own = {field: getattr(self, field) for field, names in self.names().items() if names is what}
        return self.changed(lambda inner: inner.with_names(what, change)).model_copy(
            update={field: change(name) for field, name in own.items() if name}
        )

    def server_limits(self) -> list[tuple[str | None, int]]:
        """Returns the servers that a worker with these settings sends to, with the requests of the whole job at a time.

        Returns:
            Address, None for Elasticsearch, and requests.
        """
        return [*self.own_limits(), *(limit for _, inner in self._inner() for limit in inner.server_limits())]

    def own_limits(self) -> list[tuple[str | None, int]]:
        """Returns `server_limits` without those of inner sections."""
        return []

    def for_worker(self, workers: Mapping[str | None, int]) -> Self:
        """Returns the settings with one worker's share of the requests in flight; `workers`: of each server, 1 if not said."""
        shares = [max(1, most // workers.get(server, 1)) for server, most in self.own_limits()]
        shared = self.changed(lambda inner: inner.for_worker(workers))
        return shared.model_copy(update={"max_in_flight": shares[0]}) if shares else shared

    def changed(self, change: Callable[[Settings], Settings]) -> Self:
        """Returns a copy in which `change` has replaced each inner section."""
        found: dict[str, Any] = {}
        for (field, *name), inner in self._inner():
            if name:
                found.setdefault(field, dict(getattr(self, field)))[name[0]] = change(inner)
            else:
                found[field] = change(inner)
        return self.model_copy(update=found)

    def _inner(self) -> Iterator[tuple[tuple[str, ...], Settings]]:
        """Yields the sections in its fields, and in mappings by names that the user has chosen."""
        for field in type(self).model_fields:
            value = getattr(self, field)
            for name, one in value.items() if isinstance(value, dict) else (("", value),):
                if isinstance(one, Settings):
                    yield ((field, name) if name else (field,)), one


def field_names(model: type[BaseModel]) -> dict[str, Names]:
    """Returns what the fields of a model name: field -> what."""
    fields = model.model_fields.items()
    return {name: what for name, field in fields for what in field.metadata if isinstance(what, Names)}


class Kinds:
    """A registry of settings that are told apart by their field `kind`; in an annotation it stands for any of them.

    The classes are imported when settings are first read.
    """

    def __init__(self, classes: dict[str, str], but: Collection[str] = ()) -> None:
        """Makes a registry of kind -> `module:Class`; one that is added later counts, too, but for the kinds `but`."""
        self.classes, self._but = classes, but
        self._made: tuple[list[str], TypeAdapter[Any]] | None = None

    def models(self) -> dict[str, type[BaseModel]]:
        """Returns kind -> class."""
        places = {kind: place.partition(":") for kind, place in self.classes.items() if kind not in self._but}
        return {kind: getattr(import_module(module), name) for kind, (module, _, name) in places.items()}

    def _any(self) -> TypeAdapter[Any]:
        if self._made is None or self._made[0] != [*self.classes]:
            union: Any = Union[tuple(self.models().values())]  # noqa: UP007 - of classes that are known now
            self._made = [*self.classes], TypeAdapter(Annotated[union, Field(discriminator="kind")])
        return self._made[1]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validates by the class of the value's kind."""
        return core_schema.no_info_plain_validator_function(lambda value: self._any().validate_python(value))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describes all classes."""
        return handler(self._any().core_schema)
