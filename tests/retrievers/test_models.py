from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import RetrieverError
from retrievers import flag_models
from retrievers.models import at_commit, bytes_to_fetch, model_config, model_identity, resolve_model, resolved_dtype


def folder_of_a_model(path: Path, weights: bytes = b"weights") -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def test_identity_is_of_the_content(tmp_path: Path) -> None:
    first = folder_of_a_model(tmp_path / "first")
    same = folder_of_a_model(tmp_path / "same")
    (same / "README.md").write_text("words about it decide nothing")
    (same / "pytorch_model.bin").write_bytes(b"the same weights once more; the loaders take safetensors")
    other = folder_of_a_model(tmp_path / "other", b"other weights")
    assert model_identity(str(first)).startswith("sha256:")
    assert model_identity(str(first)) == model_identity(str(same)) != model_identity(str(other))
    (first / "tokenizer.json").write_text('{"changed": true}')
    assert model_identity(str(first)) != model_identity(str(same))


def test_a_package_that_carries_weights(encoder_block: dict[str, str]) -> None:
    folder = resolve_model(encoder_block["model"])
    assert (folder / "config.json").is_file()
    assert model_identity(encoder_block["model"]) == model_identity(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("package:no_such_package", "no package 'no_such_package' is installed; pip install no-such-package"),
        ("package:json", "package 'json' has no config.json"),
        ("/no/such/folder", "no such folder; give a folder, package:NAME or a hub name"),
        ("./here", "no such folder"),
        ("two words", "no such folder"),
    ],
)
def test_what_is_not_there(name: str, message: str) -> None:
    for look in (resolve_model, model_identity, model_config):
        with pytest.raises(RetrieverError, match=message):
            look(name)


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match=r"has no config.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RetrieverError, match=r"no weights there"):
        model_identity(str(tmp_path))


def test_a_hub_name_without_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for look in (resolve_model, model_identity, model_config):
        with pytest.raises(RetrieverError, match=r"the hub did not give it \(HF_HUB_OFFLINE is set\)") as refusal:
            look("somebody/no-such-model@main")
        assert "\n" not in str(refusal.value)
        assert "hf download somebody/no-such-model" in str(refusal.value)


def test_a_hub_model_in_the_cache_is_known_by_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repo = tmp_path / "models--somebody--cached"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots").mkdir()
    folder = folder_of_a_model(repo / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    assert model_identity("somebody/cached") == f"commit:{commit}"
    assert resolve_model("somebody/cached") == folder
    (folder / "config.json").write_text('{"hidden_size": 8}')
    assert model_config("somebody/cached") == {"hidden_size": 8}
    pinned = at_commit("somebody/cached")
    assert pinned == f"somebody/cached@{commit}"
    (repo / "refs" / "main").write_text("f" * 40)  # the hub goes on: what was pinned stays
    assert resolve_model(pinned) == folder
    assert at_commit(str(folder)) == str(folder)


def hub_of(monkeypatch: pytest.MonkeyPatch, cache: Path, **sizes: int) -> None:
    """A hub whose models have these files, and a cache for them."""
    files = [SimpleNamespace(rfilename=name.replace("_", "."), size=size) for name, size in sizes.items()]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: SimpleNamespace(siblings=files))


def test_what_is_to_be_fetched_from_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub_of(monkeypatch, tmp_path, model_safetensors=2_000_000_000, pytorch_bin=3, config_json=5)
    assert bytes_to_fetch("somebody/model") == 2_000_000_000
    snapshot = tmp_path / "models--somebody--model" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    (snapshot / "config.json").write_text("{}")  # all that a check before the run fetches
    assert bytes_to_fetch("somebody/model") == 2_000_000_000
    (snapshot / "model.safetensors").write_bytes(b"weights")
    assert bytes_to_fetch("somebody/model") == 0
    assert bytes_to_fetch(str(folder_of_a_model(tmp_path / "here"))) == 0


def test_a_hub_that_is_away_tells_no_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: 1 / 0)
    assert bytes_to_fetch("somebody/model") == 0


def test_the_collector_rests_while_a_model_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []

    def make(_: str) -> SimpleNamespace:
        seen.append(gc.isenabled())
        raise ValueError("no such network")

    monkeypatch.setattr(flag_models, "resolve_model", lambda *_, **__: tmp_path)
    with pytest.raises(RetrieverError, match="cannot be loaded: ValueError: no such network"):
        flag_models._load("encoder m", "m", "cpu", False, make)
    assert (seen, gc.isenabled()) == ([False], True)


def test_code_counts_where_it_is_trusted(tmp_path: Path) -> None:
    folder = str(folder_of_a_model(tmp_path / "model"))
    plain, trusted = model_identity(folder), model_identity(folder, code=True)
    (tmp_path / "model" / "modeling.py").write_text("first = 1")
    assert model_identity(folder) == plain == trusted != model_identity(folder, code=True)


@pytest.mark.parametrize(
    ("dtype", "device", "resolved"),
    [
        ("auto", "cpu", "float32"),
        ("auto", "cuda:0", "float16"),
        ("float32", "cuda:0", "float32"),
        ("bfloat16", "cpu", "bfloat16"),
    ],
)
def test_precision_that_is_left_open(dtype: str, device: str, resolved: str) -> None:
    assert resolved_dtype(dtype, device) == resolved
