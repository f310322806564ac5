"""Base of all settings: frozen models whose fields say what they name, and kinds that are imported when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from enum import Enum
from functools import cached_property
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Self, Union, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from cluster.cause import one_line
from cluster.errors import DmqrError, nearest
from cluster.plugins import PluginError, entry_points, own_errors, plugin

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True)

FORM = "@"  # prefix of the tags of a union's members that are told apart by their form; they are no part of a key of the config
NOT_IDENTITY = Field(json_schema_extra={"identity": False})  # of a field that is no part of fingerprints (`jobs/job/keys.py`)

DURATION = r"^[1-9][0-9]*[mhdw]$"  # a pattern of durations, in minutes, hours, days or weeks: `30m`, `12h`, `7d`, `4w`
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_seconds(text: str) -> float:
    """Returns the seconds of a duration that matches `DURATION`."""
    return float(text[:-1]) * _SECONDS[text[-1]]


def _path_or_paths(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    raise ValueError(f"should be a path or a list of paths, found {value!r}")


Paths = Annotated[str | list[str], BeforeValidator(_path_or_paths)]  # a path, or a list of paths


class Names(Enum):
    """Kind of thing that the text of a field names; stands in the field's annotation."""

    FILE = "file"  # a file or folder, here or on S3
    TEXT = "text"  # a small file of text, here or on S3, of which a submitted job is sent a copy
    MODEL = "model"  # a folder of weights, or a name of a hub
    STRATEGIES = "strategies"  # strategies, of which some are paths of files of text


class Settings(BaseModel):
    """A section of a config."""

    model_config = FROZEN
    of_absent: ClassVar[Mapping[str, Any]] = {}
    """Fields that some of its classes have and others are asked for, with their annotations; of a plug-in that is not installed
    they are read by these."""

    def names(self) -> dict[str, Names]:
        """Returns field -> the file or server that it names, without fields that its other fields switch off."""
        return field_names(type(self))

    def with_names(self, what: Names, change: Callable[[str], str]) -> Self:
        """Returns a copy in which `change` has replaced the names of one sort, inner sections included."""
        own = {field: getattr(self, field) for field, names in self.names().items() if names is what}
        return self.changed(lambda inner: inner.with_names(what, change)).model_copy(
            update={field: change(name) for field, name in own.items() if name}
        )

    def server_limits(self) -> list[tuple[str | None, int]]:
        """Returns the servers (None: Elasticsearch) that a worker sends to, with the requests of the whole job at a time."""
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
        changes: dict[str, Any] = {}
        for (field, *key), inner in self._inner():
            if key:
                changes.setdefault(field, copy(getattr(self, field)))[key[0]] = change(inner)
            else:
                changes[field] = change(inner)
        return self.model_copy(update=changes)

    def _inner(self) -> Iterator[tuple[tuple[Any, ...], Settings]]:
        """Yields the sections in its fields, in mappings by names that the user has chosen, and in lists."""
        for field in type(self).model_fields:
            value = getattr(self, field)
            several = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
            for key, inner in ((None, value),) if several is None else several:
                if isinstance(inner, Settings):
                    yield ((field,) if key is None else (field, key)), inner


def field_names(model: type[BaseModel]) -> dict[str, Names]:
    """Returns field -> the files and servers that it names."""
    fields = model.model_fields.items()
    return {name: what for name, field in fields for what in field.metadata if isinstance(what, Names)}


PLUGINS = "plugins"
"""Key of the context of a validation: `REQUIRED`, where a plug-in that is not there is refused. Else, as where the config of a
earlier run is read, its settings are kept unchanged, and refused when the plug-in is to be opened."""
REQUIRED = {PLUGINS: True}
NO_KIND, NO_PLUGIN = "no_kind", "no_plugin"  # types of errors of a validation


class Kinds:
    """A registry of settings that are told apart by their field `kind`; in an annotation it stands for any of them.

    The classes are imported when settings are first read. `kind` may name a plug-in, too: an entry point of `group`, or
    `module:Class`.
    """

    def __init__(
        self,
        classes: dict[str, str],
        *,
        group: str,
        refusal: type[DmqrError],
        only: Callable[[Any], bool] = lambda _: True,
        default: str | None = None,
    ) -> None:
        """Makes a registry of kind -> `module:Class`.

        A plug-in of `group` that is not there is refused with `refusal` when it is opened. `only` chooses among the classes.
        `default` is the kind of settings that do not say theirs.
        """
        self.classes, self.group, self.refusal, self._fits, self._default = classes, group, refusal, only, default
        self._plugins: dict[str, type[BaseModel]] = {}  # those that were read last, by kind

    def only(self, fits: Callable[[Any], bool]) -> Kinds:
        """Returns the registry of those of its classes that fit."""
        return Kinds(self.classes, group=self.group, refusal=self.refusal, only=fits)

    def models(self) -> dict[str, type[BaseModel]]:
        return self._house() | self._plugins

    def _house(self) -> dict[str, type[BaseModel]]:
        every = {kind: resolve_name(place) for kind, place in self.classes.items()}
        return {kind: made for kind, made in every.items() if self._fits(made)}

    @cached_property
    def _any(self) -> TypeAdapter[Any]:
        annotated: Any = Annotated
        tagged = tuple(annotated[model, Tag(kind)] for kind, model in self._house().items())
        union: Any = Union[tagged]  # noqa: UP007 - of classes that are known now
        return TypeAdapter(annotated[union, Discriminator(self._kind)])

    def _kind(self, value: Any) -> Any:
        if isinstance(value, dict):
            return value.get("kind", self._default)
        return getattr(value, "kind", next(iter(self._house())))  # any class refuses what is no section

    def _read(self, value: Any, base: type[Settings], context: Any) -> Settings:
        kind = self._kind(value)
        if not isinstance(kind, str) or kind in self.classes:
            return cast(Settings, self._any.validate_python(value, context=context))
        if isinstance(value, base):
            return value
        try:
            return self._of_plugin(kind, value, base, context)
        except (PydanticCustomError, ValidationError) as error:
            if (context or {}).get(PLUGINS):
                raise
            first: Any = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": error}
            where = ".".join(map(str, (kind, *first["loc"][1:])))
            return absent(base, self.refusal, value, f"{where}: {one_line(first['msg'], None)}")

    def _of_plugin(self, kind: str, value: Any, base: type[Settings], context: Any) -> Settings:
        if ":" not in kind and kind not in entry_points(self.group):
            known = [*self._house(), *sorted(entry_points(self.group))]
            raise PydanticCustomError(NO_KIND, "{line}", {"line": f"no kind {kind!r}{nearest(kind, known)}"})
        try:
            loaded = plugin(
                kind,
                self.group,
                lambda one: isinstance(one, type) and issubclass(one, base) and self._fits(one),
                f"a class of {base.__name__}",
            )
            self._plugins[kind] = loaded
            # The kind is part of the places of errors, as with those of the house.
            annotated: Any = Annotated
            adapter: TypeAdapter[Any] = TypeAdapter(annotated[annotated[loaded, Tag(kind)], Discriminator(lambda _: kind)])
            refused = (PydanticCustomError, ValidationError)
            with own_errors(loaded, f"{loaded.__name__} cannot be made of these values", self.refusal, but=refused):
                return cast(Settings, adapter.validate_python(value, context=context))
        except (PluginError, DmqrError) as error:
            raise PydanticCustomError(NO_PLUGIN, "{line}", {"line": str(error)}) from error

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(lambda value, info: self._read(value, source, info.context))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self._any.core_schema)


class _AsItStands(Settings):
    """A section of a plug-in that is not installed."""

    model_config = ConfigDict(extra="allow", frozen=True)


def absent(base: type[Settings], refusal: type[DmqrError], values: Any, why: str) -> Settings:
    """Returns the settings of a plug-in that is not installed: its values unchanged; `opener` raises `refusal`."""

    def opener(_: Settings) -> str:
        raise refusal("plugin", why)

    fields: dict[str, Any] = {"kind": (str, ...)}
    for name, annotation in base.of_absent.items():
        if isinstance(values, dict) and name in values:
            either: Any = Union[annotation, _AsItStands, Any]  # noqa: UP007 - of a value
            fields[name] = (Annotated[either, Field(union_mode="left_to_right")], ...)
    model: Any = create_model(f"Absent{base.__name__}", __base__=(base, _AsItStands), **fields)
    model.opener = property(opener)
    return cast(Settings, model.model_validate(values))
