"""The folder that a cluster is sent: the four packages, the config, resolved, with prices and small text files, and plug-ins.

Other paths become absolute. A job's current folder is a copy of what was sent, so a relative path would lead into it. Paths in
files that are sent (the recording of a strategy's own engine) stay as they stand there.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cluster.errors import ConfigError
from cluster.plugins.code import Code, PluginError, file_code
from cluster.plugins.modules import code_of, installed_distributions
from cluster.plugins.references import named_file
from cluster.settings import Names
from cluster.storage import remote
from jobs.config.config import BESIDE_RUNS, Config
from jobs.config.load import Field
from jobs.job.shipping import absolute_path, package_folders
from retrievers.kinds import KINDS
from retrievers.rerankers.kinds import RERANKERS
from rewriters.engines.settings import ENGINES
from rewriters.settings import is_path

FOLDER = "submitted"
"""Folder of the config, prices.yaml and `files/` in what is sent."""
MOST_BYTES = 1 << 20  # of a file that is sent; Ray keeps what is sent in the memory of the head


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
            return absolute_path(path)
        known = {file: place for place, file in files.items()}
        file = Path(path).absolute()
        place = known.get(file, f"{FOLDER}/files/{len(files) + 1}/{file.name}")
        files[place] = file
        return place

    def code(reference: str) -> str:
        """Returns a reference to the copy of a plug-in's file, beside that of the config."""
        if (found := sent_code(reference)) is None:
            return reference
        folder = f"plugins/{found.code.version.partition(':')[2][:12]}"
        files.update({f"{FOLDER}/{folder}/{place}": file for place, file in found.files.items()})
        return f"{folder}/{found.module_file}:{found.name}"

    values = _Paths(config, text, absolute_path, code).changed()
    values.setdefault("cluster", {})["address"] = "auto"
    return SentConfig(values, files)


def with_texts(config: Config, text: Callable[[str], str], code: Callable[[str], str] = str) -> dict[str, Any]:
    """Returns a config as values, with every path that may be a text file's replaced by what `text` returns for it.

    What names code that may be in a file is replaced by what `code` returns.
    """
    return _Paths(config, text, lambda path: path, code).changed()


class SentCode(NamedTuple):
    """Files of a plug-in.

    Attributes:
        code: Their content.
        name: The class that is named.
    """

    code: Code
    name: str

    @property
    def files(self) -> dict[str, Path]:
        """Returns place -> file of this machine."""
        return {place: Path(self.code.origin).parent / place for place, _ in self.code.files}

    @property
    def module_file(self) -> str:
        """Returns the place of the file with the class."""
        return f"{self.code.module}.py"


def sent_code(reference: str) -> SentCode | None:
    """Returns the files of what a config names by `kind`, `file.py:Class`; None: it is a kind of ours, or of a package."""
    for kinds in (KINDS, ENGINES, RERANKERS):
        made = kinds.models().get(reference)
        code = None if made is None else code_of(made)
        if made is not None and code is not None and code.files:
            return SentCode(code, made.__qualname__)
    named_by_path = named_file(reference)
    if named_by_path is None or not Path(named_by_path[0]).is_file():
        return None
    try:
        return SentCode(file_code(Path(named_by_path[0])), named_by_path[1])
    except PluginError as error:
        raise ConfigError("plugin", f"{reference}: {error}") from error


def named_texts(config: Config) -> list[str]:
    """Returns the paths of the text files that a config names, of this machine or on S3."""
    found: list[str] = []

    def text(path: str) -> str:
        found.append(path)
        return path

    with_texts(config, text)
    return [path for path in found if remote(path) or Path(path).is_file()]


class _Paths:
    """The paths of a config, changed: those of text files by `text`, references to code by `code`, the others by `other`."""

    def __init__(
        self, config: Config, text: Callable[[str], str], other: Callable[[str], str], code: Callable[[str], str]
    ) -> None:
        self._config, self._text, self._other, self._code = config, text, other, code

    def changed(self) -> dict[str, Any]:
        """Returns the config as values."""
        self._values = self._config.model_dump(mode="json", exclude_unset=True)
        values: dict[str, Any] = self._part(self._values, Field(Config))
        for arm in (ablate := values.get("ablate", {})).get("arms", {}).values():
            arm |= {key: self._part(value, self._field(key, arm), key) for key, value in arm.items()}
        for key, several in ablate.get("grid", {}).items():
            ablate["grid"][key] = [self._part(one, self._field(key, {}), key) for one in several]
        return values

    def _field(self, key: str, arm: Mapping[str, Any]) -> Field:
        """Returns the field at a key in dotted form; kinds on the way are those of the arm, else of the config."""
        field, values, parts = Field(Config), self._values, key.split(".")
        for number, part in enumerate(parts):
            field = field.inside(part, arm.get(".".join([*parts[:number], "kind"]), values.get("kind")))
            values = inner if isinstance(inner := values.get(part), dict) else {}
        return field

    def _part(self, value: Any, field: Field, key: str = "") -> Any:
        if isinstance(value, str) and key.rpartition(".")[2] == "kind":
            return self._code(value)
        if field.names is Names.STRATEGIES and isinstance(value, list):
            return [self._strategy(one) for one in value]
        if isinstance(value, dict):
            return {name: self._part(one, field.inside(name, value.get("kind")), name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._part(one, field) for one in value]
        return self._path(value, field.names) if isinstance(value, str) else value

    def _strategy(self, entry: Any) -> Any:
        if isinstance(entry, dict):
            return {self._source(source): parameters for source, parameters in entry.items()}
        return self._source(entry) if isinstance(entry, str) else entry

    def _source(self, source: str) -> str:
        if named_file(source) is not None:
            return self._code(source)
        return self._text(source) if is_path(source) else source

    def _path(self, value: str, what: Names | None) -> str:
        if what is Names.TEXT:  # a name without a file of that name is one of ours
            return self._text(value)
        is_file = what in (Names.FILE, Names.KEY) and value != BESIDE_RUNS
        return self._other(value) if is_file or (what is Names.MODEL and Path(value).is_dir()) else value


_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def write_package(folder: Path, sent: SentConfig, config_name: str, prices: Path) -> str:
    """Writes what is sent into an empty folder; returns the config's place in it.

    It will be the job's current folder, on the head and on every node with a worker. The file of prices need not exist.
    """
    for package in map(Path, package_folders()):
        shutil.copytree(package, folder / package.name, ignore=_LEFT_OUT)
    for place, file in sent.files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / place)
    place = f"{FOLDER}/{config_name}"
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / place).write_text(yaml.safe_dump(sent.values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    if prices.exists():
        shutil.copyfile(prices, folder / FOLDER / "prices.yaml")
    _write_version(folder)
    return place


def _write_version(folder: Path) -> None:
    """Writes what `importlib.metadata` reads our version from, and plug-ins, for nodes on which we are not installed."""
    try:
        version = importlib.metadata.version("dmqr")
    except importlib.metadata.PackageNotFoundError:
        return
    _write_distribution(folder, "dmqr", version, "")
    for name in installed_distributions():  # by whose entry points the config may name plug-ins
        of = importlib.metadata.distribution(name)
        _write_distribution(folder, name, of.version, of.read_text("entry_points.txt") or "")


def _write_distribution(folder: Path, name: str, version: str, entry_points: str) -> None:
    named = folder / f"{re.sub('[-.]+', '_', name)}-{version}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    if entry_points:
        (named / "entry_points.txt").write_text(entry_points, encoding="utf-8")
