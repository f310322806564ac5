"""Where model weights lie, and which weights they are.

A model is named by a folder, by ``package:NAME`` (an installed package that carries weights), or by a hub name
(``BAAI/bge-base-en-v1.5``, or ``BAAI/bge-base-en-v1.5@REVISION``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path

from retrievers.retriever import RetrieverError

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_TEXT_FILES = {".json", ".txt", ".model", ".tiktoken", ".jinja"}
_WEIGHTS = (".safetensors", ".bin")  # the first kind that is there is what the loaders take


def resolve_model(name: str) -> Path:
    """The folder of a model's files; a hub model is fetched into the hub's own cache first.

    Raises:
        RetrieverError: nothing there, saying what was looked for.
    """
    local = local_folder(name)
    return local if local else _fetch(name)


def model_identity(name: str) -> str:
    """Which weights a name stands for: ``sha256:...`` over a folder's files, ``commit:...`` for a hub name.

    Cost: a folder's weights are read once per process (about 1 s for 1 GB).

    Raises:
        RetrieverError: nothing there.
    """
    folder = local_folder(name)
    if folder is None:
        return f"commit:{_commit(name)}"
    files = tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in _model_files(folder))
    return f"sha256:{_content_hash(files)}"


def quiet_loading() -> None:
    """Switch off the bars that transformers draws while it loads weights: a worker's output is nobody's terminal."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def local_folder(name: str) -> Path | None:
    """The folder that a path or ``package:`` names, None where the name must be a hub's."""
    if name.startswith("package:"):
        return _package_folder(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise RetrieverError(f"model {name}: the folder has no config.json; give the folder of a model's files")
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or not _HUB_NAME.fullmatch(name):
        raise RetrieverError(f"model {name}: no such folder; give a folder, package:NAME or a hub name")
    return None


def _package_folder(name: str) -> Path:
    package = name.removeprefix("package:")
    spec = importlib.util.find_spec(package) if re.fullmatch(r"\w+", package) else None
    if spec is None or not spec.submodule_search_locations:
        install = package.replace("_", "-")
        raise RetrieverError(f"model {name}: no package {package!r} is installed; pip install {install}")
    root = Path(next(iter(spec.submodule_search_locations)))
    for folder in (root, root / "model", *sorted(f for f in root.iterdir() if f.is_dir())):
        if (folder / "config.json").is_file():
            return folder
    raise RetrieverError(f"model {name}: package {package!r} has no config.json in its folder or one below it; name another")


def _model_files(folder: Path) -> list[Path]:
    """The files that decide what the model computes: weights, configuration, vocabulary; in order of name."""
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
    for kind in _WEIGHTS:
        weights = [f for f in files if f.suffix == kind]
        if weights:
            return sorted(weights + [f for f in files if f.suffix in _TEXT_FILES])
    raise RetrieverError(f"model {folder}: no weights there (no *.safetensors, no *.bin); copy them there")


@lru_cache(maxsize=64)
def _content_hash(files: tuple[tuple[str, int, int], ...]) -> str:
    whole = hashlib.sha256()
    for path, _, _ in files:
        with open(path, "rb") as f:
            whole.update(f"{Path(path).name}\0{hashlib.file_digest(f, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()[:32]


def _hub_parts(name: str) -> tuple[str, str | None]:
    repo, _, revision = name.partition("@")
    return repo, revision or None


@lru_cache(maxsize=64)
def _commit(name: str) -> str:
    from huggingface_hub import HfApi

    repo, revision = _hub_parts(name)
    try:
        sha = HfApi().model_info(repo, revision=revision, timeout=10).sha
    except Exception as e:  # offline, no such repository, no access: the cache may still have it
        return _cached(name, e).name
    return str(sha)


@lru_cache(maxsize=64)
def _fetch(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    repo, revision = _hub_parts(name)
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=10)
        files = [f.rfilename for f in info.siblings or [] if "/" not in f.rfilename]
        kind = next((k for k in _WEIGHTS if any(f.endswith(k) for f in files)), ".bin")
        wanted = [f for f in files if Path(f).suffix in _TEXT_FILES | {kind}]
        folder = Path(snapshot_download(repo, revision=info.sha, allow_patterns=wanted))
    except Exception as e:
        folder = _cached(name, e)
    if not (folder / "config.json").is_file():
        raise RetrieverError(f"model {name}: the repository has no config.json, so it cannot be loaded; name another")
    return folder


def _cached(name: str, reason: Exception) -> Path:
    """The snapshot of a hub model in the hub's cache; its folder is named by the commit."""
    from huggingface_hub import snapshot_download

    repo, revision = _hub_parts(name)
    try:
        return Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except Exception:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        raise RetrieverError(
            f"model {name}: no such folder here, not in the hub's cache, and the hub did not give it{offline}: "
            f"{type(reason).__name__}; give a folder, package:NAME, or fetch it first with: hf download {repo}"
        ) from None
