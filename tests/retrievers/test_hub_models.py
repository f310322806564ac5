"""Models of a hub: before a run only the files that say how they were made, then these and the weights; offline the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.retrievers.fake_hub import COMMIT, FakeHub
from tests.support.retrievers.tiny_encoders import make_encoder

SAID = "from retrievers.encoder import encoder_identity, encoder_dim\nprint(encoder_dim(S), encoder_identity(S)['pooling'])"
MADE = (
    "from retrievers.encoder import Encoder\nfrom retrievers.retriever import SearchText\n"
    "print(Encoder(S).encode([SearchText('sea')]).shape[1])"
)


def in_a_process(code: str, address: str, home: Path, *, offline: bool = False) -> str:
    """What it prints, or the last line of its error; the hub's address is read when the library is imported."""
    code = f"from retrievers.settings import EncoderSettings\nS = EncoderSettings(model='some/model@{COMMIT}')\n{code}"
    places = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | places, cwd=Path(__file__).parents[2], capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = make_encoder(tmp_path / "model", "bert", ["sea and moon"], "mean", dense=[16], prompts={"query": "find: "})
    (made / "onnx").mkdir()
    (made / "onnx" / "model.onnx").write_bytes(b"not asked for")
    return made


@pytest.mark.slow
def test_what_a_model_says_of_itself_is_fetched_first(folder: Path, tmp_path: Path) -> None:
    with FakeHub(folder) as hub:
        assert in_a_process(SAID, hub.address, tmp_path / "home") == "16 mean"
        assert {"config.json", "modules.json", "1_Pooling/config.json", "2_Dense/config.json"} <= set(hub.fetched)
        assert not [name for name in hub.fetched if name.endswith((".safetensors", ".onnx"))]
        assert in_a_process(MADE, hub.address, tmp_path / "home") == "16"
        assert {"model.safetensors", "2_Dense/model.safetensors"} <= set(hub.fetched)
        assert "onnx/model.onnx" not in hub.fetched
    assert in_a_process(MADE, hub.address, tmp_path / "home", offline=True) == "16"


@pytest.mark.slow
def test_a_cache_without_the_pooling_is_no_whole_model(folder: Path, tmp_path: Path) -> None:
    """As an earlier version left it, which fetched no files in folders."""
    with FakeHub(folder) as hub:
        in_a_process(MADE, hub.address, tmp_path / "home")
    for left in (tmp_path / "home").rglob("1_Pooling/config.json"):
        left.unlink()
    said = in_a_process(SAID, hub.address, tmp_path / "home", offline=True)
    assert "its 1_Pooling/config.json, which says how it pools, is not here; fetch the whole model" in said
