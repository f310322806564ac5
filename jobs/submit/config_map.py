"""What a ConfigMap holds of a config: its file as it is, prices, and the small text files that it names.

The config stays the text of its file, so that `{date}` is filled in every night; settings of the command name the copies of the
text files in place of the files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import ConfigError
from cluster.kuberay.manifests import CONFIG_FOLDER
from cluster.storage.packed import PACKED
from jobs.config.config import Config
from jobs.config.load import yesterday
from jobs.submit.sent_config import MOST_BYTES, sent_code, with_texts

PRICES = "prices.yaml"
APPLIED_BYTES = (
    200_000  # `kubectl apply` keeps a copy in an annotation, which may have 262,144 bytes, unless by `--server-side`
)
_MOST_MAP_BYTES = MOST_BYTES - 10_000  # of a ConfigMap, with names and labels
_SETS = ("ablate", "sets")
_UNSAFE = re.compile(r"[^-._A-Za-z0-9]")


class ConfigFiles(NamedTuple):
    """The ConfigMap of a config.

    Attributes:
        config: Path of the config in a pod.
        data: Key -> text.
        paths: Key -> path below the folder of the volume.
        settings: `a.b=value`, which name the copies of text files.
        sent: Files of this machine, as the config names them, that are in it.
    """

    config: str
    data: dict[str, str]
    paths: dict[str, str]
    settings: list[str]
    sent: list[str]

    @property
    def size(self) -> int:
        """Returns the bytes of all texts."""
        return sum(len(text.encode()) for text in self.data.values())


def config_files(config: Config, config_path: str, *, any_night: bool) -> ConfigFiles:
    """Returns what a ConfigMap holds of a config and its file.

    A file stays a path if it is Parquet or packed, or if the ConfigMap would become larger than Kubernetes takes; with
    `any_night` also if its name has the date of this night.

    Raises:
        ConfigError: A file cannot be read.
    """
    path = Path(config_path)
    name = path.name if not _UNSAFE.search(path.name) else "config.yaml"
    found = ConfigFiles(f"{CONFIG_FOLDER}/{name}", {name: _read(path)}, {name: name}, [], [])
    if (prices := path.with_name(PRICES)).exists():
        found.data[PRICES], found.paths[PRICES] = _read(prices), PRICES
    dates = {yesterday(), config.log.date or yesterday()} if any_night else set()
    places: dict[Path, str] = {}

    def text(named: str) -> str:
        file = Path(named)
        if not file.is_file() or file.suffix in (".parquet", *PACKED) or any(date in named for date in dates):
            return named
        if file.absolute() not in places:
            if file.stat().st_size + found.size > _MOST_MAP_BYTES:
                return named
            number = len(places) + 1
            key = f"file-{number}-{_UNSAFE.sub('-', file.name)}"[:253]
            found.data[key], found.paths[key] = _read(file), f"files/{number}/{file.name}"
            places[file.absolute()] = f"{CONFIG_FOLDER}/{found.paths[key]}"
        found.sent.append(named)
        return places[file.absolute()]

    def code(named: str, group: str) -> str:
        files = sent_code(named, group)
        if files is None or found.size + sum(len(content) for _, content in files.code.files) > _MOST_MAP_BYTES:
            return named
        folder = f"plugins/{files.code.version.partition(':')[2][:12]}"
        for place, content in files.code.files:
            path = f"{folder}/{place}"
            mark = hashlib.sha256(path.encode()).hexdigest()[:12]  # other paths may be alike without letters that no key has
            key = f"plugin-{mark}-{_UNSAFE.sub('-', place)}"[:253]
            found.data[key], found.paths[key] = _text(content, files.code.origin, place), path
        found.sent.append(named)
        return f"{CONFIG_FOLDER}/{folder}/{files.module_file}:{files.name}"

    before = with_texts(config, lambda named: named)
    found.settings.extend(_changes(before, with_texts(config, text, code)))
    return found


def _changes(before: dict[str, Any], after: dict[str, Any], *keys: str) -> Iterator[str]:
    """Yields `a.b=value` for the values that differ: whole ones, where a key could not be told from several."""
    for key, value in after.items():
        if value == before[key]:
            continue
        plain = isinstance(value, dict) and value.keys() == before[key].keys() and not any("." in one for one in value)
        plain = plain and (*keys, key) != _SETS  # whose names may stand as a list in the file
        if plain:
            yield from _changes(before[key], value, *keys, key)
        else:
            yield f"{'.'.join([*keys, key])}={json.dumps(value, ensure_ascii=False)}"


def _text(content: bytes, origin: str, place: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = f"{Path(origin).parent / place}: is not UTF-8, as the texts of a ConfigMap are; save it as UTF-8"
        raise ConfigError("config-file", line) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError("config-file", f"{path}: cannot be read: {why}; give a text file in UTF-8") from error
