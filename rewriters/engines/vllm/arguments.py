"""Settings that an engine may be given: arguments and reasoning parsers that the installed vLLM knows, and LoRA adapters.

The former are read from vLLM's source: importing it takes long.
"""

import ast
import importlib.util
import json
from pathlib import Path

from cluster.cause import one_line
from cluster.errors import RewriterError

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, that vLLM makes room for


def argument_names() -> set[str]:
    """Returns the names of vLLM's engine arguments; none where vLLM is not installed."""
    classes = {node.name: node for node in _statements("engine/arg_utils.py") if isinstance(node, ast.ClassDef)}
    fields = [statement for name in ("EngineArgs", "AsyncEngineArgs") if name in classes for statement in classes[name].body]
    return {field.target.id for field in fields if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)}


def parser_names() -> set[str]:
    """Returns the names of vLLM's reasoning parsers; none where vLLM is not installed."""
    names: set[str] = set()
    for statement in _statements("reasoning/__init__.py"):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            names |= {key.value for key in statement.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return names


def _statements(path: str) -> list[ast.stmt]:
    spec = importlib.util.find_spec("vllm")
    source = Path(next(iter(spec.submodule_search_locations))) / path if spec else None  # type: ignore[arg-type]
    return ast.parse(source.read_text()).body if source is not None and source.is_file() else []


def adapter_folder(name: str) -> Path:
    """Returns the folder of a LoRA adapter; NAME or NAME@REVISION of a hub is fetched."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        repo, _, revision = name.partition("@")
        try:
            folder = Path(snapshot_download(repo, revision=revision or None))
        except Exception as error:
            line = f"engine 'vllm': lora {name}: no such folder, and the hub gave none: {one_line(error, 200)}"
            raise RewriterError("model", f"{line}; give the folder of an adapter") from error
    if not (folder / "adapter_config.json").is_file():
        raise RewriterError("model", f"engine 'vllm': lora {name}: no adapter_config.json there; give the folder of an adapter")
    return folder


def rank_for(folder: Path) -> int:
    """Returns the smallest `max_lora_rank` that vLLM knows and that holds the adapter."""
    rank = int(json.loads((folder / "adapter_config.json").read_text())["r"])
    return next((known for known in _RANKS if known >= rank), rank)
