"""LoRA adapters: where one lies, and how much room it needs."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.errors import RewriterError

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM makes room for


def adapter_folder(name: str) -> Path:
    """The folder of a LoRA adapter; NAME or NAME@REVISION of a hub is fetched."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        repo, _, revision = name.partition("@")
        try:
            folder = Path(snapshot_download(repo, revision=revision or None))
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            where = f"engine 'vllm': lora {name}"
            raise RewriterError(
                "engine-model", f"{where}: no such folder, and the hub gave none: {why}; give the folder of an adapter"
            ) from error
    if not (folder / "adapter_config.json").is_file():
        raise RewriterError(
            "engine-model", f"engine 'vllm': lora {name}: no adapter_config.json there; give the folder of an adapter"
        )
    return folder


def rank_for(folder: Path) -> int:
    """The smallest `max_lora_rank` that vLLM knows and that holds the adapter."""
    rank = int(json.loads((folder / "adapter_config.json").read_text())["r"])
    return next((known for known in _RANKS if known >= rank), rank)
