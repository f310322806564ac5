"""Files that come from a bucket or a hub are data: code that is planted in an index or beside weights does not run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import RetrieverError
from retrievers.reranker import open_reranker
from retrievers.retriever import open_retriever
from retrievers.settings import RerankSettings
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.tiny_reranker import make_reranker


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
