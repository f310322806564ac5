"""From the config's words to an engine, and to a pool of strategies with rules and demonstrations from files."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError, RetrieverError, RewriterError
from jobs.config.config import Config
from jobs.job.engine import MAX_BLOCKS, blocks_in_flight, check, resolve
from jobs.job.rewrite import read_rewriting
from rewriters.engines.settings import OpenaiSettings, RecordedSettings, VllmSettings
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    return model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub's cache with one model, and no way to the hub."""
    repository = tmp_path / "hub" / "models--maker--small"
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    (repository / "snapshots" / COMMIT / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_folder_is_identified_by_what_it_holds_not_by_where_it_lies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    settings, identity = resolve(VllmSettings(kind="vllm", model="./model"))
    assert (settings.model, settings.weights, settings.commit) == ("./model", str(folder), None)
    assert identity["weights"].startswith("sha256:")
    assert str(folder) not in repr(identity)
    for name, content in (("model.safetensors", b"others!"), ("chat_template.jinja", b"{{ messages }}")):
        before = resolve(VllmSettings(kind="vllm", model="./model"))[1]
        (folder / name).write_bytes(content)
        assert resolve(VllmSettings(kind="vllm", model="./model"))[1] != before
    with pytest.raises(RetrieverError, match=r"\./nowhere: no such folder"):
        resolve(VllmSettings(kind="vllm", model="./nowhere"))


def test_a_branch_is_resolved_to_the_commit_that_it_is_now_and_has_its_own_key(hub: None) -> None:
    settings, identity = resolve(VllmSettings(kind="vllm", model="maker/small"))
    assert (settings.weights, settings.commit) == ("maker/small", COMMIT)
    assert identity["weights"] == f"commit:{COMMIT}"
    with pytest.raises(ConfigError, match=r"put it into rewrite\.engine\.revision"):
        resolve(VllmSettings(kind="vllm", model="maker/small@main"))


def test_an_adapter_is_part_of_the_identity(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8}')
    (adapter / "adapter_model.safetensors").write_bytes(b"a")
    settings, identity = resolve(VllmSettings(kind="vllm", model=str(folder), lora=str(adapter)))
    assert (settings.lora, settings.lora_name) == (str(adapter), str(adapter))
    assert identity["lora_weights"].startswith("sha256:")


def test_where_vllm_is_missing_it_is_said_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = VllmSettings(kind="vllm", model=str(folder))
    with pytest.raises(RewriterError, match=r"pip install 'dmqr\[vllm\]'"):
        check(settings, local=True)
    check(settings, local=False)  # the workers of another machine may have it


@pytest.mark.parametrize(
    ("engine", "shard_size", "expected"),
    [
        (RecordedSettings(kind="recorded", path="x"), 8, 1),
        (VllmSettings(kind="vllm", model="m"), 1000, 4),
        (VllmSettings(kind="vllm", model="m", args={"max_num_seqs": 256}), 1000, 2),
        (OpenaiSettings(kind="openai", model="m", base_url="http://a/v1"), 100, 7),
        (OpenaiSettings(kind="openai", model="m", base_url="http://a/v1"), 8, MAX_BLOCKS),
    ],
)
def test_a_worker_has_enough_shards_to_keep_its_engine_busy(engine: Any, shard_size: int, expected: int) -> None:
    assert blocks_in_flight(engine, shard_size) == expected


Values = dict[str, Any]


def rewriting(values: Values, **rewrite: Any) -> Rewriting:
    return read_rewriting(Config.model_validate(values | {"rewrite": values["rewrite"] | rewrite}))


@pytest.mark.parametrize("content", [b"Do this.\n{query}\n\n", b"\xef\xbb\xbfDo this.\r\n{query} \r\n", b"Do this.\n{query}"])
def test_what_an_editor_adds_is_not_in_it(tmp_path: Path, values: Values, content: bytes) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert rewriting(values, joint_prompt=str(path)).joint_prompt == "Do this.\n{query}"


def test_names_files_and_parameters_stand_beside_each_other(tmp_path: Path, values: Values) -> None:
    (tmp_path / "medical.yaml").write_text("label: Medical Terms\nprompt: 'Terms: {query}'\n", encoding="utf-8-sig")
    made = rewriting(values, strategies=["keyword", f"{tmp_path}/medical.yaml", {"rag_fusion": {"n": 2}}], language="German")
    assert [one.name for one in made.pool] == ["keyword", "medical", "rag_fusion(n=2)"]
    assert [request.name for request in Rewriter(made).requests(Query("id1", "tea"))] == ["dmqr", "rag_fusion(n=2)", "medical"]
    assert all(one.any_language for one in made.pool)


def test_earlier_turns_are_shown_where_the_log_has_them(values: Values) -> None:
    turned = values | {"log": values["log"] | {"context_column": "turns"}}
    (request,) = Rewriter(rewriting(turned)).requests(Query("id1", "and then?", "who was first"))
    assert "who was first" in request.prompt
    assert rewriting(values).context is False


def test_demonstrations_and_rules_are_read_from_files(tmp_path: Path, values: Values) -> None:
    (tmp_path / "d.yaml").write_text(yaml.safe_dump([{"query": "a b", "rewrites": {"keyword": "a, b"}, "reason": "terms"}]))
    adaptive = rewriting(values, select={"kind": "adaptive", "demonstrations": str(tmp_path / "d.yaml")})
    (request,) = Rewriter(adaptive).requests(Query("id1", "tea"))
    assert "Query: a b\nKeyword Rewriting: a, b\nreason: terms\n\nQuery: tea" in request.prompt
    rules = {"rules": [{"type": "long", "contains": ["and"]}], "otherwise": "short"}
    types = {"descriptions": {"long": "l", "short": "s"}, "strategies": {"long": ["keyword"], "short": "none"}}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(rules | types))
    classified = Rewriter(rewriting(values, select={"kind": "classified", "rules": str(tmp_path / "r.yaml")}))
    assert dict(classified.choose(Query("id1", "salt and pepper")).texts) == {"keyword": None}
    assert dict(classified.choose(Query("id1", "salt")).texts) == {}
