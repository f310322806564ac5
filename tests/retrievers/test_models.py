"""Models: what identifies them, what is fetched of a hub, and that code planted beside data and weights does not run."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from huggingface_hub.utils import filter_repo_objects

from cluster.errors import RetrieverError
from retrievers import models
from retrievers.encoder import Encoder, encoder_dim, encoder_identity
from retrievers.models import at_commit, description, model_identity, resolve_model
from retrievers.reranker import open_reranker
from retrievers.retriever import SearchText, open_retriever
from retrievers.settings import EncoderSettings, RerankSettings
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.tiny_encoders import make_encoder
from tests.support.retrievers.tiny_reranker import make_reranker


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
    for look in (resolve_model, model_identity, description):
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
    for look in (resolve_model, model_identity, description):
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
    assert description("somebody/cached") == folder
    pinned = at_commit("somebody/cached")
    assert pinned == f"somebody/cached@{commit}"
    (repo / "refs" / "main").write_text("f" * 40)  # the hub goes on: what was pinned stays
    assert resolve_model(pinned) == folder
    assert at_commit(str(folder)) == str(folder)


class Hub:
    """A hub with the files of a folder, and its cache; `fetched` are the files that were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, cache: Path) -> None:
        self.fetched: list[str] = []
        names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
        files = [SimpleNamespace(rfilename=name, size=(folder / name).stat().st_size) for name in names]
        told = SimpleNamespace(siblings=files, sha="a" * 40)
        self.snapshot = cache / "models--some--model" / "snapshots" / told.sha

        def download(
            repo: str, *, allow_patterns: list[str], revision: str | None = None, local_files_only: bool = False
        ) -> str:
            wanted = list(filter_repo_objects(names, allow_patterns=allow_patterns))
            if local_files_only and not all((self.snapshot / name).is_file() for name in wanted):
                raise FileNotFoundError("not cached")
            for name in () if local_files_only else wanted:
                (self.snapshot / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / name, self.snapshot / name)
                self.fetched.append(name)
            return str(self.snapshot)

        monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: told)
        monkeypatch.setattr("huggingface_hub.snapshot_download", download)
        models._fetched.cache_clear()
        models._commit.cache_clear()


def test_what_a_model_says_of_itself_is_fetched_before_its_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "there", "bert", ["sea and moon"], "mean", dense=[16], prompts={"query": "find: "})
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"not asked for")
    hub, settings = Hub(monkeypatch, folder, tmp_path / "cache"), EncoderSettings(model="some/model")
    assert (encoder_dim(settings), encoder_identity(settings)["pooling"]) == (16, "mean")
    assert {"config.json", "modules.json", "1_Pooling/config.json", "2_Dense/config.json"} <= set(hub.fetched)
    assert not [name for name in hub.fetched if name.endswith((".safetensors", ".onnx"))]
    assert Encoder(settings).encode([SearchText("sea")]).shape == (1, 16)
    assert {"model.safetensors", "2_Dense/model.safetensors"} <= set(hub.fetched)
    assert "onnx/model.onnx" not in hub.fetched
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: 1 / 0)  # offline: the cache
    models._fetched.cache_clear()
    assert Encoder(settings).dim == 16
    (hub.snapshot / "1_Pooling" / "config.json").unlink()  # as an earlier version left it, which fetched no files in folders
    with pytest.raises(RetrieverError, match=r"its 1_Pooling/config.json, which says how it pools, is missing; fetch the who"):
        encoder_dim(settings)


def test_code_counts_where_it_is_trusted(tmp_path: Path) -> None:
    folder = str(folder_of_a_model(tmp_path / "model"))
    plain, trusted = model_identity(folder), model_identity(folder, code=True)
    (tmp_path / "model" / "modeling.py").write_text("first = 1")
    assert model_identity(folder) == plain == trusted != model_identity(folder, code=True)


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns what unpickling calls."""
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("name", ["bm25", "dense"])
def test_arrays_of_an_index(name: str, both_index: Path, encoder_block: dict[str, Any], tmp_path: Path) -> None:
    index, mark = tmp_path / "index", tmp_path / "mark"
    shutil.copytree(both_index, index)
    arrays = [path for path in index.rglob("*.npy") if ("vector" in path.name) == (name == "dense")]
    assert arrays
    for path in arrays:
        np.save(path, np.array([Planted(mark)], dtype=object), allow_pickle=True)
    field = {"encoder": encoder_block} if name == "dense" else {"analyzer": "english"}
    with pytest.raises(RetrieverError, match="build it again"):
        open_retriever(name, typed({"kind": "local", "index": str(index), **field}))
    assert not mark.exists()


def test_weights_of_a_model(tmp_path: Path) -> None:
    import torch

    folder, mark = make_reranker(tmp_path / "model", ["a few words for a vocabulary"]), tmp_path / "mark"
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.weight": Planted(mark)}, folder / "pytorch_model.bin")
    with pytest.raises(RetrieverError, match="cannot be loaded"):
        open_reranker(RerankSettings(kind="cross_encoder", model=str(folder), max_length=64))
    assert not mark.exists()
