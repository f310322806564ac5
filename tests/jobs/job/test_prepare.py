"""The fingerprint moves with what decides the output alone; and what is checked before a run."""

import copy
import json
import shutil
import types
import typing
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster.errors import ClusterError, ConfigError
from cluster.prices import Prices
from cluster.settings import Kinds
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.keys import VERSIONS, fingerprint, identity
from jobs.job.prepare import Prepared, free_models, prepare, unpriced_models
from jobs.run.draft import check_indexes_unchanged
from retrievers import models
from retrievers.local.build import build_local_index
from rewriters.engines.settings import AnthropicSettings, OpenaiSettings, RecordedSettings, VllmSettings
from rewriters.pool import load
from rewriters.settings import identity_fields
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]

Change = Callable[[Values], None]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bm25: Values, values: Values) -> Values:
    """A config whose files are all there, in the current folder."""
    monkeypatch.chdir(tmp_path)
    columns = {"query": ["sea", "bread"], "other": ["x", "y"], "id": ["l1", "l2"], "n": [1, 2]}
    for name in ("log.parquet", "log2.parquet"):
        pq.write_table(pa.table(columns), name)
    Path("recorded.jsonl").write_text('{"query": "sea", "completions": {"dmqr": "a"}}\n')
    Path("recorded2.jsonl").write_text('{"query": "sea", "completions": {"dmqr": "b"}}\n')
    Path("qrels.tsv").write_text("l1\td1\t1\n")
    shutil.copytree(bm25["index"], "index")
    values["rerank"] = {"kind": "none"}
    return values


def prepared(values: Values) -> Prepared:
    Path("job.yaml").write_text(yaml.safe_dump(values))
    return prepare(load_config("job.yaml", [], "2026-01-31"), "job.yaml")


def put(dotted: str, value: object) -> Change:
    def change(values: Values) -> None:
        *parents, last = dotted.split(".")
        for key in parents:
            values = values.setdefault(key, {})
        values[last] = value

    return change


def fingerprint_with(values: Values, change: Change = lambda values: None) -> str:
    changed = copy.deepcopy(values)
    change(changed)
    found = prepared(changed)
    assert found.run_id.startswith(f"{changed['name']}-")
    return found.run_id.removeprefix(f"{changed['name']}-")


def rename_index(values: Values) -> None:
    shutil.copytree("index", "elsewhere")
    values["retrieve"]["retrievers"]["bm25"]["index"] = "elsewhere"


def move_recording(values: Values) -> None:
    shutil.copy("recorded.jsonl", "moved.jsonl")
    values["rewrite"]["engine"]["path"] = "moved.jsonl"


def rename_retriever(values: Values) -> None:
    retrievers = values["retrieve"]["retrievers"]
    retrievers["lexical"] = retrievers.pop("bm25")


def own_prompt(values: Values, text: str = "Rewrite: {query}\n", name: str = "prompt.txt") -> None:
    Path(name).write_text(text)
    values["rewrite"]["joint_prompt"] = name


def rewrite_recording(values: Values) -> None:
    Path("recorded.jsonl").write_text(Path("recorded2.jsonl").read_text())


def replace_index() -> None:
    pq.write_table(pa.table({"doc_id": ["d1"], "text": ["other words"]}), "corpus.parquet")
    build_local_index("index", "corpus.parquet", index_fields("english"))


DECIDING: dict[str, Change] = {
    "a key of a section": put("fuse.k", 1),
    "the recording's content": rewrite_recording,
    "the name of a retriever": rename_retriever,
    "the content of an index": lambda _: replace_index(),
    "a joint prompt": own_prompt,
}


@pytest.mark.parametrize("change", DECIDING.values(), ids=DECIDING)
def test_what_decides_the_output_is_in_it(job: Values, change: Change) -> None:
    before = fingerprint_with(job)
    assert fingerprint_with(job, change) != before


@pytest.mark.parametrize(
    "change", [move_recording, rename_index, put("rerank", {"kind": "none", "keep": 3, "model": "another"})]
)
def test_where_files_lie_and_keys_that_are_not_used_are_not_in_it(job: Values, change: Change) -> None:
    before = fingerprint_with(job)
    assert fingerprint_with(job, change) == before


def begin(found: Prepared) -> None:
    """Writes the files of a start of the run before its first shard is committed."""
    found.storage.put("run.json", json.dumps({"identity": found.identity, "status": "running"}).encode())


def test_an_unfinished_run_whose_hub_has_moved_is_refused(job: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = {"main": "a" * 40}

    def model_info(_: object, repo: str, revision: str | None = None, **__: object) -> SimpleNamespace:
        return SimpleNamespace(sha=hub.get(revision or "main", revision), siblings=[])

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    models._commit.cache_clear()
    job["rewrite"]["engine"] = {"kind": "vllm", "model": "somebody/model"}
    before = prepared(job)
    begin(before)
    hub["main"] = "b" * 40  # somebody has corrected its README
    models._commit.cache_clear()  # as in another process
    after = prepared(job)
    assert after.run_id != before.run_id
    with pytest.raises(ClusterError, match="was started with another commit of a hub's model") as refused:
        check_indexes_unchanged(after)
    assert refused.value.code == "run-changed"
    assert f"was commit:{'a' * 40}, is commit:{'b' * 40}" in str(refused.value)
    put("rewrite.engine.revision", "a" * 40)(job)
    pinned = prepared(job)
    assert pinned.run_id == before.run_id  # goes on
    check_indexes_unchanged(pinned)
    models._commit.cache_clear()


def test_the_same_run_and_finished_ones_and_other_configs_are_no_obstacle(job: Values) -> None:
    before = prepared(job)
    begin(before)
    check_indexes_unchanged(before)
    begin(prepared(job | {"name": f"{job['name']}-test"}))  # which begins alike
    replace_index()
    other = copy.deepcopy(job)
    put("fuse.k", 7)(other)
    check_indexes_unchanged(prepared(other))
    before.storage.put("_SUCCESS.json", b"{}")
    check_indexes_unchanged(prepared(job))


def test_a_label_is_in_the_folder_and_not_in_the_fingerprint(job: Values) -> None:
    name, digest = prepared(job).run_id.rsplit("-", 1)
    assert prepared(job | {"label": "monday"}).run_id == f"{name}-monday-{digest}"
    dated = job | {"log": job["log"] | {"date": "2026-01-31"}}
    assert prepared(dated).run_id == f"{name}-2026-01-31-{digest}"
    assert prepared(dated | {"label": "again"}).run_id == f"{name}-again-{digest}"


def test_a_model_of_a_server_without_a_price_is_told(values: dict[str, Any]) -> None:
    engine = {"kind": "openai", "model": "tyni", "base_url": "http://host/v1"}
    config = Config.model_validate(values | {"rewrite": {"engine": engine}})
    (words,) = unpriced_models(config, Prices(tokens={"tiny": {"prompt": 1.0}}))
    assert words.startswith("prices.yaml: tokens: no price for the model 'tyni'; did you mean 'tiny'?")
    assert unpriced_models(config, None) == unpriced_models(config, Prices(tokens={"tyni": {}})) == ()
    limited = config.model_copy(update={"limits": config.limits.model_copy(update={"max_cost_usd": 1.0})})
    with pytest.raises(ConfigError, match=r"max_cost_usd cannot hold: prices\.yaml has no price for the model 'tyni'; did"):
        unpriced_models(limited, Prices(tokens={"tiny": {"prompt": 1.0}}))
    assert unpriced_models(limited, Prices(tokens={"tyni": {}})) == ()
    assert free_models(config, Prices()) == ["tyni"]


def test_a_tier_without_a_price_is_told(values: dict[str, Any]) -> None:
    engine = {"kind": "openai", "model": "tiny", "base_url": "http://host/v1", "args": {"service_tier": "flex"}}
    config = Config.model_validate(values | {"rewrite": {"engine": engine}})
    (words,) = unpriced_models(config, Prices(tokens={"tiny": {"prompt": 1.0}}))
    assert words == (
        "prices.yaml: tokens: 'tiny' has no price for tier flex, so its tokens count as of the standard tier; add "
        "tiers: {flex: ...} there"
    )
    assert unpriced_models(config, Prices(tokens={"tiny": {"tiers": {"flex": {"prompt": 0.5}}}})) == ()


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

APART["AnthropicSettings"] = APART["WebSettings"] = APART["OpenaiSettings"]

APART["OpenaiEncoderSettings"] = APART["OpenaiSettings"] | {"batch"}

APART["RerankSettings"] = APART["OpenaiEncoderSettings"] | {"store"}

STEPS = "Answer Iterate LabelGrade Question Grade Strips WebSearch Relevance Accuracy Criteria"

# What it resolves to counts in its place: prompts, weights, the content of a file or an index (test_prepare.py).
RESOLVED = {
    "RewriteSettings": {"strategies", "joint_prompt"},
    "SelectAdaptive": {"demonstrations"},
    "SelectClassified": {"rules"},
    **{f"{step}Settings": {"prompt", "variables"} for step in STEPS.split()},
    "VllmSettings": {"model", "revision", "lora", "args", "reasoning_parser"},
    "RecordedSettings": {"path"},
    "EncoderSettings": {"model"},
    "RerankSettings": {"model"},
    "LocalSettings": {"index"},
    "TrecSettings": {"path"},
    "ElasticSettings": {"index", "filter", "shards"},
}
RESOLVED["RelevanceSettings"] |= {"relevant"}  # of measures


def config_models(part: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Every model that can stand in a config, by name; not what is in a field that does not count."""
    found = {part.__name__: part}
    for name, field in part.model_fields.items():
        if name not in APART.get(part.__name__, ()):
            kinds = [model for one in field.metadata if isinstance(one, Kinds) for model in one.models().values()]
            for inner in kinds or parts_of(field.annotation):
                found |= config_models(inner)
    return found


def parts_of(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    inner = typing.get_args(kind)
    if any(isinstance(one, Kinds) for one in inner):
        inner = [model for one in inner if isinstance(one, Kinds) for model in one.models().values()]
    return [part for one in inner for part in parts_of(one)]


FIELDS = [(part, name) for part in config_models(Config).values() for name in part.model_fields]


def test_the_walk_reaches_every_family() -> None:
    names = "Config Log Rewrite Decoding Retrieve Fuse Rerank Vllm Openai Recorded Local Elastic Query Bm25 Vector"
    reached = {name.removesuffix("Settings") for name in config_models(Config)}
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
