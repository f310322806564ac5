"""The engine arguments that the installed vLLM knows."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def argument_names() -> set[str]:
    """Returns the names of vLLM's engine arguments, read from its source, since importing it takes ten seconds."""
    spec = importlib.util.find_spec("vllm")
    source = Path(next(iter(spec.submodule_search_locations))) / "engine" / "arg_utils.py" if spec else None  # type: ignore[arg-type]
    if source is None or not source.is_file():
        return set()
    classes = {node.name: node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)}
    fields = [statement for name in ("EngineArgs", "AsyncEngineArgs") if name in classes for statement in classes[name].body]
    return {field.target.id for field in fields if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)}
