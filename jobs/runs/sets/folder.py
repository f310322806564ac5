"""The folder of an ablation over several data sets: its record, and below it the folder of each set's own ablation.

Its `run.json` names the sets and their folders, and `_SUCCESS.json` is put when all of them are finished.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cluster.errors import ConfigError
from cluster.run.shards import SUCCESS
from cluster.storage import Storage, open_storage
from jobs.config.config import Config
from jobs.job.keys import SCHEMA_VERSION, VERSIONS
from jobs.runs.folder import SETS, RunFolder, open_run, stored_json

RECORD = "run.json"


@dataclass(frozen=True)
class SetsFolder:
    """An ablation over sets."""

    storage: Storage
    record: dict[str, Any]
    """`run.json`: run_id, status, config, config_file, and set -> the name of its folder."""
    finished: bool

    @cached_property
    def config(self) -> Config:
        """Returns the resolved config, with its sets."""
        return Config.model_validate(self.record["config"])

    @property
    def is_ablation(self) -> bool:
        """Returns true, as of a folder of one ablation."""
        return True

    @property
    def folders(self) -> dict[str, str]:
        """Returns set -> the path or URL of its folder."""
        return {name: self.storage.url(folder) for name, folder in self.record[SETS].items()}

    @property
    def state(self) -> str:
        """Returns 'finished', or the status."""
        return "finished" if self.finished else str(self.record["status"])

    def opened(self) -> dict[str, RunFolder]:
        """Returns set -> its ablation.

        Raises:
            ConfigError: one has not begun, or is damaged.
        """
        found = {}
        for name, folder in self.folders.items():
            if open_storage(folder).get(RECORD) is None:
                raise ConfigError(
                    "run-missing", f"{self.storage.root}: the set {name} has not begun; go on with: dmqr ablate CONFIG"
                )
            found[name] = open_run(folder)
        return found


def open_sets(path: str) -> SetsFolder | None:
    """Returns the ablation over sets that lies in a folder; None: something else does, or nothing.

    Raises:
        ConfigError: it is damaged, or of another version.
    """
    storage = open_storage(path)
    try:
        if storage.get(RECORD) is None:
            return None
        values = stored_json(storage, RECORD)
    except NotADirectoryError:
        return None
    if SETS not in values:
        return None
    found = SetsFolder(storage, values, storage.stat(SUCCESS) is not None)
    try:
        _ = found.config, values["run_id"], values["status"], dict(values[SETS])
    except (KeyError, ValidationError, ValueError, TypeError) as error:
        raise ConfigError(
            "run-damaged", f"{storage.url(RECORD)}: is of another version of dmqr, or was changed; give one of this version"
        ) from error
    return found


def record_sets(storage: Storage, run_id: str, config: Config, config_file: str, sets: Mapping[str, str], status: str) -> None:
    """Writes the record of an ablation over sets; of a finished one `_SUCCESS.json`, too, and it stays finished.

    Args:
        storage: its folder.
        run_id: the folder's name.
        config: with its sets.
        config_file: its path.
        sets: set -> the name of its folder.
        status: running, stopped or finished.
    """
    known = stored_json(storage, RECORD)
    status = "finished" if storage.stat(SUCCESS) is not None else status
    record = {
        "run_id": run_id,
        "status": status,
        "schema_version": SCHEMA_VERSION,
        "versions": VERSIONS,
        "began": known.get("began", time.time()),
        "config_file": config_file,
        "config": config.model_dump(mode="json"),
        SETS: dict(sets),
    }
    storage.put(RECORD, json.dumps(record, ensure_ascii=False, indent=1).encode())
    if status == "finished" and storage.stat(SUCCESS) is None:
        storage.put(SUCCESS, json.dumps({"run_id": run_id, "finished_at": time.time()}).encode())
