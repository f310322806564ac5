"""Settings that an engine may be given: arguments that the installed vLLM knows, and LoRA adapters."""

import ast
import importlib.util
import json
from pathlib import Path

from cluster.cause import one_line
from cluster.errors import RewriterError

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, that vLLM makes room for


def argument_names() -> set[str]:
    """Returns the names of vLLM's engine arguments, by its source: importing it takes long."""
    spec = importlib.util.find_spec("vllm")
    folder = next(iter((spec and spec.submodule_search_locations) or ()))
    source = ast.parse((Path(folder) / "engine" / "arg_utils.py").read_text())
    classes = [node for node in source.body if isinstance(node, ast.ClassDef) and node.name.endswith("EngineArgs")]
    fields = [statement for node in classes for statement in node.body if isinstance(statement, ast.AnnAssign)]
    return {field.target.id for field in fields if isinstance(field.target, ast.Name)}


def adapter_folder(name: str) -> Path:
    """Returns the folder of a LoRA adapter; NAME or NAME@REVISION of a hub is fetched."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        repo, _, revision = name.partition("@")
        try:
            folder = Path(snapshot_download(repo, revision=revision or None))
        except Exception as error:
            why = one_line(error, 200)
            where = f"engine 'vllm': lora {name}"
            raise RewriterError(
                "model", f"{where}: no such folder, and the hub gave none: {why}; give the folder of an adapter"
            ) from error
    if not (folder / "adapter_config.json").is_file():
        raise RewriterError("model", f"engine 'vllm': lora {name}: no adapter_config.json there; give the folder of an adapter")
    return folder


def rank_for(folder: Path) -> int:
    """Returns the smallest `max_lora_rank` that vLLM knows and that holds the adapter."""
    rank = int(json.loads((folder / "adapter_config.json").read_text())["r"])
    return next((known for known in _RANKS if known >= rank), rank)
