"""The config as a cluster is sent it: resolved, with the small text files that it names, and absolute paths for the rest.

A job's current folder is a copy of what was sent, so a relative path would lead into it. Paths in files that are sent (the
recording of a strategy's own engine) stay as they stand there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cluster.storage import remote
from jobs.config.config import BESIDE_RUNS, Config
from retrievers.hybrid.settings import all_indexed
from retrievers.local.settings import LocalSettings
from rewriters.pool import is_path

FOLDER = "submitted"
"""Folder of the config, prices.yaml and `files/` in what is sent."""
MOST_BYTES = 1 << 20  # of a file that is sent; Ray keeps what is sent in the memory of the head
Key = tuple[str, ...]

_TEXTS: tuple[Key, ...] = (
    ("rewrite", "joint_prompt"),
    ("rewrite", "select", "rules"),
    ("rewrite", "select", "demonstrations"),
    ("rewrite", "guards", "overrides"),
    ("rewrite", "guards", "vocabulary", "path"),
    ("evaluate", "qrels"),
    ("evaluate", "answers"),
)  # of them, a name without a file of that name is one of ours
_STRATEGIES = ("rewrite", "strategies")
_PATHS: tuple[Key, ...] = (("output",), ("store",), ("log", "path"), ("log", "events"), ("rewrite", "engine", "path"))
_RETRIEVERS = ("retrieve", "retrievers")  # below it the names that the user has chosen
_MODELS = {"model", "lora", "tokenizer"}  # a folder or a name
_KEYS = {"api_key_file", "password_file"}  # never sent: they lie on the nodes


class SentConfig(NamedTuple):
    """What is sent of a config.

    Attributes:
        values: The config as YAML holds it.
        files: Place in what is sent -> file of this machine.
    """

    values: dict[str, Any]
    files: dict[str, Path]


def sent_config(config: Config) -> SentConfig:
    """Returns what is sent of a config, which joins the Ray that runs its driver (`cluster.address: auto`)."""
    files: dict[str, Path] = {}

    def text(path: str) -> str:
        """Returns the place of a text file's copy, or its absolute path if it is too large; what is no file stays."""
        if remote(path) or not Path(path).is_file():
            return path
        if Path(path).stat().st_size >= MOST_BYTES:
            return absolute(path)
        known = {file: place for place, file in files.items()}
        file = Path(path).absolute()
        place = known.get(file, f"{FOLDER}/files/{len(files) + 1}/{file.name}")
        files[place] = file
        return place

    values = _Paths(config, text, absolute).changed()
    values.setdefault("cluster", {})["address"] = "auto"
    return SentConfig(values, files)


def with_texts(config: Config, text: Callable[[str], str]) -> dict[str, Any]:
    """Returns a config as values, with every path that may be a text file's replaced by what `text` returns for it."""
    return _Paths(config, text, lambda path: path).changed()


def named_texts(config: Config) -> list[str]:
    """Returns the paths of the text files that a config names, of this machine or on S3."""
    found: list[str] = []

    def text(path: str) -> str:
        found.append(path)
        return path

    with_texts(config, text)
    return [path for path in found if remote(path) or Path(path).is_file()]


def absolute(path: str) -> str:
    """Returns an absolute path; one of S3 as it is."""
    return path if "://" in path else str(Path(path).absolute())


class _Paths:
    """The paths of a config, changed: those of text files by `text`, the others by `other`."""

    def __init__(self, config: Config, text: Callable[[str], str], other: Callable[[str], str]) -> None:
        self._config, self._text, self._other = config, text, other

    def changed(self) -> dict[str, Any]:
        """Returns the config as values."""
        values: dict[str, Any] = self._part(self._config.model_dump(mode="json", exclude_unset=True), ())
        return values

    def _part(self, value: Any, key: Key) -> Any:
        if isinstance(value, dict) and key == ("ablate", "arms"):
            return {name: self._dotted(arm) for name, arm in value.items()}
        if isinstance(value, dict) and key == ("ablate", "grid"):
            return {name: [self._part(one, tuple(name.split("."))) for one in several] for name, several in value.items()}
        if isinstance(value, list) and key == _STRATEGIES:
            return [self._strategy(one) for one in value]
        if isinstance(value, dict):
            return {name: self._part(one, (*key, name)) for name, one in value.items()}
        if isinstance(value, list):
            return [self._part(one, key) for one in value]
        return self._path(value, key) if isinstance(value, str) and key else value

    def _dotted(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Returns the changes of an arm, whose keys are in dotted form."""
        return {name: self._part(value, tuple(name.split("."))) for name, value in changes.items()}

    def _strategy(self, entry: Any) -> Any:
        if isinstance(entry, dict):
            return {self._text(source) if is_path(source) else source: parameters for source, parameters in entry.items()}
        return self._text(entry) if isinstance(entry, str) and is_path(entry) else entry

    def _path(self, value: str, key: Key) -> str:
        if key in _TEXTS:
            return self._text(value)
        if value == BESIDE_RUNS:
            return value
        if key in _PATHS or key[-1] in _KEYS:
            return self._other(value)
        if key[:2] == _RETRIEVERS and self._is_path(".".join(key[2:-1]), key[-1]):
            return self._other(value)
        return self._other(value) if key[-1] in _MODELS and Path(value).is_dir() else value

    def _is_path(self, retriever: str, name: str) -> bool:
        """Returns whether a key of a retriever holds a path: an index of Elasticsearch is a name."""
        settings = all_indexed(self._config.retrieve.retrievers).get(retriever)
        return name == "ca_file" or (name == "index" and isinstance(settings, LocalSettings))
