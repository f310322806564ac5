"""From the config's words to an engine: what workers open, what the fingerprint holds, how large the pool is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError, RetrieverError, RewriterError
from jobs.job.engine import MAX_BLOCKS, blocks_in_flight, check, resolve
from rewriters.engines.settings import OpenaiSettings, RecordedSettings, VllmSettings

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


@pytest.mark.slow
def test_an_argument_that_vllm_does_not_know_is_refused_where_vllm_is(folder: Path) -> None:
    pytest.importorskip("vllm")
    settings, _ = resolve(VllmSettings(kind="vllm", model=str(folder), args={"max_modle_len": 5}))
    with pytest.raises(RewriterError, match="did you mean 'max_model_len'"):
        check(settings, local=True)


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
