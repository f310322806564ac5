"""The folder that a cluster is sent: packages, modules of plug-ins, the config, resolved, with prices and small text files.

Other paths become absolute. A job's current folder is a copy of what was sent, so a relative path would lead into it. Paths in
files that are sent (the recording of a strategy's own engine) stay as they stand there.
"""

import importlib.metadata
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cluster.settings import Names
from cluster.storage import remote
from jobs.config.config import BESIDE_RUNS, Config
from jobs.config.load import Field
from jobs.job.paths import absolute_path, package_folders
from jobs.log.judgements import local_qrels
from jobs.log.sets.names import moved, set_name
from rewriters.engines.settings import ENGINES
from rewriters.pool import named
from rewriters.settings import SelectClassified, is_path
from rewriters.steps.settings import LlmStepSettings, PromptSettings

FOLDER = "submitted"  # folder of the config, prices.yaml and `files/` in what is sent
_SHIPPED: Mapping[str, tuple[type, ...]] = {"prompt": (LlmStepSettings, PromptSettings), "rules": (SelectClassified,)}
"""Key -> sections in which a name that is no path is of what we ship, whatever files are in the current folder."""
MOST_BYTES = 1 << 20  # of a file that is sent; Ray keeps what is sent in the memory of the head


class SentConfig(NamedTuple):
    """The part of a config that is sent."""

    values: dict[str, Any]
    files: dict[str, Path]  # place in what is sent -> file of this machine
    names_remote: bool  # whether text files on S3 are named, which this machine may not be allowed to read


def sent_config(config: Config, folder: str = FOLDER) -> SentConfig:
    """Returns the config that is sent, which joins the Ray that runs its driver (`cluster.address: auto`).

    `folder` is where the config and its files will lie.
    """
    files, remote_texts = dict[str, Path](), list[str]()

    def text(path: str) -> str:
        """Returns the path of a text file's copy, or its absolute path if it is too large; other values stay."""
        if remote(path):
            remote_texts.append(path)
        if not Path(path).is_file():
            return path
        if Path(path).stat().st_size >= MOST_BYTES:
            return absolute_path(path)
        file = Path(path).absolute()
        target = {file: target for target, file in files.items()}.get(file, f"{folder}/files/{len(files) + 1}/{file.name}")
        files[target] = file
        return target

    values = _Paths(config, text, absolute_path).changed()
    values.setdefault("cluster", {})["address"] = "auto"
    return SentConfig(values, files, bool(remote_texts))


class _Paths:
    """The paths of a config, changed: those of text files by `text`, the others by `other`."""

    def __init__(self, config: Config, text: Callable[[str], str], other: Callable[[str], str]) -> None:
        self._config, self._text, self._other = config, text, other

    def changed(self) -> dict[str, Any]:
        self._values = self._config.model_dump(mode="json", exclude_unset=True)
        values: dict[str, Any] = self._part(self._values, Field(Config))
        for arm in (ablate := values.get("ablate", {})).get("arms", {}).values():
            arm |= {key: self._at(key, value, arm) for key, value in arm.items()}
        if "runs" in ablate:
            ablate["runs"] = {name: self._path(path, Names.TEXT) for name, path in ablate["runs"].items()}
        for key, several in ablate.get("grid", {}).items():
            ablate["grid"][key] = [self._at(key, value, {}) for value in several]
        return values

    def _at(self, key: str, value: Any, arm: Mapping[str, Any]) -> Any:
        above, _, last = key.rpartition(".")
        return self._inside(last, value, self._field(above, arm), self._field(key, arm))

    def _field(self, key: str, arm: Mapping[str, Any]) -> Field:
        """Returns the field at a key in dotted form; kinds on the way are those of the arm, else of the config."""
        field, values, parts = Field(Config), self._values, key.split(".")
        for number, part in enumerate(parts):
            field = field.inside(part, arm.get(".".join([*parts[:number], "kind"]), values.get("kind")))
            values = inner if isinstance(inner := values.get(part), dict) else {}
        return field

    def _part(self, value: Any, field: Field) -> Any:
        if field.names is Names.STRATEGIES and isinstance(value, list):
            return [self._strategy(inner) for inner in value]
        if isinstance(value, dict):
            kind = value.get("kind")
            return {name: self._inside(name, inner, field, field.inside(name, kind)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._part(inner, field) for inner in value]
        return self._path(value, field.names) if isinstance(value, str) else value

    def _inside(self, key: str, value: Any, section: Field, field: Field) -> Any:
        is_shipped = isinstance(value, str) and not is_path(value) and _is_of(section, _SHIPPED.get(key, ()))
        return value if is_shipped else self._part(value, field)

    def _strategy(self, entry: Any) -> Any:
        """Returns an entry of strategies; one whose parameters are elsewhere keeps its name."""
        try:
            wanted = named(entry)
        except ValueError:  # of an arm, which whoever makes it refuses
            return entry
        source, parameters = wanted.source, dict(wanted.parameters)
        if isinstance(engine := parameters.get("engine"), dict):
            parameters["engine"] = self._part(engine, Field(ENGINES.models()))
        source = self._text(source) if is_path(source) else source
        changed = named({source: parameters} if parameters else source)
        if changed.name != wanted.name:
            parameters["name"] = wanted.name
        return {source: parameters} if parameters else source

    def _path(self, value: str, what: Names | None) -> str:
        if what is Names.TEXT:  # a name without a file of that name is one of ours
            if set_name(value) is None:
                return self._text(value)
            of_split = local_qrels(value)
            return moved(value, self._other) if of_split is None else self._text(of_split)
        is_file = what is Names.FILE and value != BESIDE_RUNS
        return moved(value, self._other) if is_file or (what is Names.MODEL and Path(value).is_dir()) else value


def _is_of(section: Field, classes: tuple[type, ...]) -> bool:
    models = section.model.values() if isinstance(section.model, dict) else [section.model]
    return any(isinstance(model, type) and issubclass(model, classes) for model in models)


_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def write_package(folder: Path, sent: SentConfig, config_name: str, prices: Path) -> str:
    """Writes what is sent into an empty folder; returns the config's place in it.

    It will be the job's current folder, on the head and on every node with a worker. The file of prices need not exist.
    """
    for package in map(Path, package_folders()):
        if package.is_dir():
            shutil.copytree(package, folder / package.name, ignore=_LEFT_OUT)
        else:
            shutil.copyfile(package, folder / package.name)
    for target, file in sent.files.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / target)
    target = f"{FOLDER}/{config_name}"
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / target).write_text(yaml.safe_dump(sent.values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    if prices.exists():
        shutil.copyfile(prices, folder / FOLDER / "prices.yaml")
    with suppress(importlib.metadata.PackageNotFoundError):  # `importlib.metadata` reads it on nodes without us
        version = importlib.metadata.version("dmqr")
        about = folder / f"dmqr-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dmqr\nVersion: {version}\n", encoding="utf-8")
    return target
