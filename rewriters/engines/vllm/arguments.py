"""The engine arguments and reasoning parsers that the installed vLLM knows, read from its source: importing it takes long."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def argument_names() -> set[str]:
    """Returns the names of vLLM's engine arguments; none where its source is not here."""
    classes = {node.name: node for node in _statements("engine/arg_utils.py") if isinstance(node, ast.ClassDef)}
    fields = [statement for name in ("EngineArgs", "AsyncEngineArgs") if name in classes for statement in classes[name].body]
    return {field.target.id for field in fields if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)}


def parser_names() -> set[str]:
    """Returns the names of vLLM's reasoning parsers; none where its source is not here."""
    found: set[str] = set()
    for statement in _statements("reasoning/__init__.py"):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            found |= {key.value for key in statement.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def _statements(path: str) -> list[ast.stmt]:
    """Returns the statements of a file of vLLM."""
    spec = importlib.util.find_spec("vllm")
    source = Path(next(iter(spec.submodule_search_locations))) / path if spec else None  # type: ignore[arg-type]
    return ast.parse(source.read_text()).body if source is not None and source.is_file() else []
