"""The check that an unfinished run of the same config goes on with what it began with: its indexes, its models' commits."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.errors import ClusterError
from cluster.run.shards import SUCCESS
from jobs.config.config import Config
from jobs.job.prepare import Prepared
from jobs.runs.folder import find_runs
from retrievers.hybrid.settings import indexed_identities
from retrievers.models import at_commit

_COMMIT = re.compile(r"commit:.+")
_CONTENT_KEYS = ("index", "uuid", "mapping", "corpus")  # identity keys of an Elasticsearch index that differ between indexes


def check_indexes_unchanged(prepared: Prepared) -> None:
    """Checks that no unfinished run of the same config and label used other indexes, or other commits of a hub's models.

    Raises:
        ClusterError: there is one, and it cannot be resumed with the present ones.
    """
    mine = _without_indexes(_without_commits(prepared.identity))
    before_fingerprint = prepared.run_id.rpartition("-")[0]
    for folder, record in find_runs(prepared.output, prepared.config.name):
        other = record.get("identity") or {}
        if folder == prepared.run_id or folder.rpartition("-")[0] != before_fingerprint:
            continue
        if "indexes" not in other or _without_indexes(_without_commits(other)) != mine:
            continue
        if prepared.output.stat(f"{folder}/{SUCCESS}") is None:
            anew = "remove that folder (or take another name) to start anew"
            if moved := _moved_commits(other, prepared.identity):
                commits = ", ".join(f"{earlier}, now {present}" for present, earlier in moved.items())
                where = f"{prepared.output.url(folder)} was started with another commit of a hub's model ({commits})"
                pinned = _pins(prepared.config, moved) or "that commit named where its model is"
                words = f"{where}, and is not finished; {anew}, or go on with: the same command and {pinned}"
                raise ClusterError("run-changed", words)
            where = f"{prepared.output.url(folder)} was started with another index"
            if overrides := _index_overrides(other["indexes"], prepared.indexes):
                raise ClusterError(
                    "run-changed", f"{where}, and is not finished; {anew}, or go on with: the same command and {overrides}"
                )
            raise ClusterError(
                "run-changed", f"{where}, which has been replaced since, and is not finished; put the index back, or {anew}"
            )


def _index_overrides(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> str:
    """Returns the `--set` overrides that select the earlier indexes, or "" if there are none.

    Elasticsearch keeps an index when its alias is moved; a local index is replaced.
    """
    then, new = indexed_identities(before), indexed_identities(now)
    moved = [name for name in new if then[name] != new[name]]
    if any(new[name].get("kind") != "elastic" or then[name]["index"] == new[name]["index"] for name in moved):
        return ""
    found = []
    for name in moved:
        found.append(f"--set retrieve.retrievers.{name}.index={then[name]['index']}")
        if "filter" in then[name]:  # of the alias, which this name is not
            only = shlex.quote(f"retrieve.retrievers.{name}.filter={json.dumps(then[name]['filter'])}")
            found.append(f"--set {only}")
    return " ".join(found)


def _without_indexes(identified_by: dict[str, Any]) -> str:
    """Returns the identity as JSON without the contents of the indexes; local indexes are left out whole."""
    searched = {
        name: {key: value for key, value in index.items() if key not in _CONTENT_KEYS}
        if index.get("kind") == "elastic"
        else None
        for name, index in indexed_identities(identified_by["indexes"]).items()
    }
    return json.dumps({**identified_by, "indexes": searched}, sort_keys=True)


def _without_commits(value: Any) -> Any:
    """Returns an identity in which commits of hubs' models are left blank."""
    if isinstance(value, Mapping):
        return {key: _without_commits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_commits(item) for item in value]
    return "commit:" if isinstance(value, str) and _COMMIT.fullmatch(value) else value


def _moved_commits(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Returns present commit -> the earlier one, of the models whose commits differ between two identities."""
    known, found = dict(_commits(before)), dict(_commits(now))
    return {found[place]: known[place] for place in found if place in known and known[place] != found[place]}


def _pins(config: Config, moved: Mapping[str, str]) -> str:
    """Returns the `--set` overrides that name the earlier commits, or "" where a model is named outside of the config."""
    found, left = [], set(moved)
    for place, values in _models(config.model_dump(), ()):
        model, revision = str(values["model"]), values.get("revision")
        present = at_commit(f"{model}@{revision}" if revision else model).partition("@")[2]
        if earlier := moved.get(present):
            name = model.partition("@")[0]
            key, value = ("revision", earlier) if "revision" in values else ("model", f"{name}@{earlier}")
            found.append(f"--set {'.'.join((*place, key))}={value}")
            left.discard(present)
    return "" if left else " ".join(found)


def _commits(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list | tuple) else []
    for key, item in items:
        yield from _commits(item, (*place, key))
    if isinstance(value, str) and _COMMIT.fullmatch(value):
        yield place, value.removeprefix("commit:")


def _models(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yields the mappings of a config that name a model which is loaded here."""
    if not isinstance(value, dict):
        return
    if isinstance(value.get("model"), str) and value.get("kind") not in ("openai", "server", "none"):
        yield place, value
    for key, item in value.items():
        yield from _models(item, (*place, str(key)))
