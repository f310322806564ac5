"""Every field of the config counts for the fingerprint, but for those that are listed here with their reason."""

from __future__ import annotations

import types
import typing
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster.settings import Kinds
from jobs.config.config import Config
from jobs.job.keys import VERSIONS, fingerprint, identity
from rewriters.engines.settings import AnthropicSettings, OpenaiSettings, RecordedSettings, VllmSettings
from rewriters.pool import load
from rewriters.settings import identity_fields

# Not part of what comes out: where, how fast, how long, what is shown.
APART = {
    "Config": {
        "name", "label", "corpus", "limits", "evaluate", "ablate", "report", "publish", "notify", "output", "store",
        "store_ttl", "cluster",
    },
    "LogSettings": {"date", "allow_empty"},
    "RetrieveSettings": {"store"},
    "VllmSettings": {"timeout_seconds"},
    "OpenaiSettings": {
        "base_url", "api_key_env", "max_in_flight", "timeout_seconds", "patience_minutes",
    },
    "ElasticSettings": {
        "url_env", "api_key_env", "max_in_flight", "timeout_seconds", "patience_minutes",
    },
}  # fmt: skip
APART["AnthropicSettings"] = APART["OpenaiSettings"]
SERVER = {
    "base_url",
    "api_key_env",
    "max_in_flight",
    "batch",
    "timeout_seconds",
    "patience_minutes",
}
APART |= {"OpenaiEncoderSettings": SERVER, "RerankSettings": SERVER | {"store"}}
APART["WebSettings"] = SERVER - {"batch"}
# What it resolves to counts in its place: prompts, weights, the content of a file or an index (test_prepare.py).
RESOLVED = {
    "RewriteSettings": {"strategies", "joint_prompt"},
    "SelectAdaptive": {"demonstrations"},
    "SelectClassified": {"rules"},
    "AnswerSettings": {"prompt", "variables"},
    "IterateSettings": {"prompt", "variables"},
    "LabelGradeSettings": {"prompt", "variables"},
    "QuestionSettings": {"prompt", "variables"},
    "GradeSettings": {"prompt", "variables"},
    "StripsSettings": {"prompt", "variables"},
    "WebSearchSettings": {"prompt", "variables"},
    "RelevanceSettings": {"prompt", "variables", "relevant"},  # the last is of measures
    "AccuracySettings": {"prompt", "variables"},
    "CriteriaSettings": {"prompt", "variables"},
    "VllmSettings": {"model", "revision", "lora", "args", "reasoning_parser"},
    "RecordedSettings": {"path"},
    "EncoderSettings": {"model"},
    "RerankSettings": {"model"},
    "LocalSettings": {"index"},
    "TrecSettings": {"path"},
    "ElasticSettings": {"index", "filter", "shards"},
}


def models(part: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Every model that can stand in a config, by name; not what is in a field that does not count."""
    found = {part.__name__: part}
    for name, field in part.model_fields.items():
        if name not in APART.get(part.__name__, ()):
            kinds = [model for one in field.metadata if isinstance(one, Kinds) for model in one.models().values()]
            for inner in kinds or parts_of(field.annotation):
                found |= models(inner)
    return found


def parts_of(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    inner = typing.get_args(kind)
    if any(isinstance(one, Kinds) for one in inner):
        inner = [model for one in inner if isinstance(one, Kinds) for model in one.models().values()]
    return [part for one in inner for part in parts_of(one)]


FIELDS = [(part, name) for part in models(Config).values() for name in part.model_fields]


def test_the_walk_reaches_every_family() -> None:
    names = "Config Log Rewrite Decoding Retrieve Fuse Rerank Vllm Openai Recorded Local Elastic Query Bm25 Vector"
    reached = {name.removesuffix("Settings") for name in models(Config)}
    assert {*names.split(), "Encoder", "OpenaiEncoder"} <= reached


@pytest.mark.parametrize(("part", "name"), FIELDS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_field_counts_unless_it_is_listed(part: type[BaseModel], name: str) -> None:
    listed = name in APART.get(part.__name__, set()) | RESOLVED.get(part.__name__, set())
    field = part.model_fields[name]
    marked = (field.json_schema_extra or {}).get("identity") is False
    assert marked == listed, f"{part.__name__}.{name}: say in this test why it does not count, or unmark it"
    before = part.model_construct(**{one: whatever(other) for one, other in part.model_fields.items()})
    after = before.model_copy(update={name: another(field)})
    assert (identity_fields(before) == identity_fields(after)) == marked


def whatever(field: FieldInfo) -> Any:
    """A value of the field: its default, or something where it is required."""
    return "x" if field.is_required() else field.get_default(call_default_factory=True)


def another(field: FieldInfo) -> Any:
    """A value that is not its default; form does not matter here."""
    kinds = parts_of(field.annotation)
    if kinds and typing.get_origin(field.annotation) not in (dict, types.UnionType):
        inner = kinds[0]
        name = next((name for name in inner.model_fields if name not in APART.get(inner.__name__, ())), None)
        if name is None:  # of one of several kinds
            return "changed"
        return inner.model_construct(**{one: whatever(other) for one, other in inner.model_fields.items()} | {name: "changed"})
    return "changed"


def a_config(values: dict[str, Any], **parts: Any) -> Config:
    return Config.model_validate(values | parts)


def test_fields_at_their_default_are_left_out(values: dict[str, Any]) -> None:
    plain = identity_fields(a_config(values))
    assert plain["log"] == {"path": "log.parquet", "query_column": "query"}
    assert not {"fuse", "rerank", "limits", "cluster", "name", "output"} & set(plain)
    assert identity_fields(a_config(values, fuse={"k": 60, "depth": 30})) == plain
    assert identity_fields(a_config(values, fuse={"k": 61}))["fuse"] == {"k": 61}


def test_weights_of_fields_count_unless_they_are_one(values: dict[str, Any]) -> None:
    bm25 = {"kind": "local", "index": "index"}

    def of(**more: Any) -> dict[str, Any]:
        return identity_fields(a_config(values, retrieve={"retrievers": {"bm25": bm25 | more}}))

    assert of(fields={}) == of(fields={"title": 1, "text": 1}) == of()
    assert of(fields={"title": 3})["retrieve"]["retrievers"]["bm25"] == {"kind": "local", "fields": {"title": 3}}


def test_a_version_of_an_algorithm_counts(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config(values)
    before = fingerprint(identity(config, {}, {}, {}))
    for name in ("parse", "analyze", "fuse", "order"):
        with monkeypatch.context() as patch:
            patch.setitem(VERSIONS, name, VERSIONS[name] + 1)
            assert fingerprint(identity(config, {}, {}, {})) != before


ENGINES = (AnthropicSettings, OpenaiSettings, RecordedSettings, VllmSettings)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in ENGINES for name in kind.model_fields],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_of_a_strategys_own_engine_the_same_fields_count(kind: type[BaseModel], name: str) -> None:
    listed = name in APART.get(kind.__name__, set()) | RESOLVED.get(kind.__name__, set())
    plain = load("rewrite")
    before = kind.model_construct(**{one: whatever(other) for one, other in kind.model_fields.items()})
    engines = before, before.model_copy(update={name: "changed"})
    one, other = (plain.model_copy(update={"engine": engine}).identity() for engine in engines)
    assert (one == other) == listed
    assert "engine" not in plain.identity()
