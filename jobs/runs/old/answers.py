"""What a run alone has of the store's facts: answers of shards that were never done, as a killed or stopped run leaves them.

A shard's answers are in the store before it is committed. In which space an answer belongs is told by the engines that the run
has recorded; where it may be one of several, it is put into each: its key has a hash of its engine, so that no other job takes
it for its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from cluster.run.lease import first_began
from cluster.run.shards import committed_shards
from cluster.storage import Storage, open_storage, remote
from jobs.chain.arms.opened import digest
from jobs.chain.completions import REUSED, record_of, uncommitted
from jobs.chain.journal import OF_THE_WEB, row_key
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import Space, open_store
from jobs.chain.store.layout import VERSION
from jobs.config.config import Config
from jobs.job.steps import VARIABLES

_OF_STEPS = tuple(VARIABLES)  # keys of an identity


class Unsaved(NamedTuple):
    """Answers that no store has.

    Attributes:
        rows: Of COMPLETIONS.
        why_kept: Why they cannot be put into the store; None: they can.
    """

    rows: list[dict[str, Any]]
    why_kept: str | None


NOTHING = Unsaved([], None)


def unsaved_answers(storage: Storage, record: Mapping[str, Any], now: float) -> Unsaved:
    """Returns the answers of an unfinished run that are in no store, though it has one.

    Args:
        storage: The run's folder.
        record: Its `run.json`.
        now: Seconds since the epoch.
    """
    try:
        config = Config.model_validate(record["config"])
    except (KeyError, ValidationError):
        config = None
    if config is not None and config.store_folder is None:
        return NOTHING
    committed = committed_shards(storage)
    rows = [row for row in uncommitted(storage, committed) if _is_fact(row)]
    if config is not None and _has_web(storage, committed):
        return Unsaved(rows, "it alone has answers of the web")
    if not rows:
        return NOTHING
    if config is None:
        return Unsaved(rows, "it has answers that no store has, and is of another version of dmqr")
    why = _unknown(config, record)
    return Unsaved(rows, why and f"it has answers that no store has, and {why}")


def save_answers(output: Storage, storage: Storage, record: Mapping[str, Any], rows: list[dict[str, Any]]) -> int:
    """Puts answers that `unsaved_answers` has found into the run's store, dated by the run's begin; returns how many are new.

    Args:
        output: Where the run lies, beside which its store may be.
        storage: Its folder.
        record: Its `run.json`.
        rows: Of COMPLETIONS.
    """
    config = Config.model_validate(record["config"]).model_copy(update={"output": output.root})
    assert config.store_folder is not None
    asked = {
        EngineRequest(digest(identity), row_key(row), row["prompt"]): record_of(row)
        for row in rows
        for identity in _made_by(record, row["request"])
    }
    about = {Space("completions", digest(identity)): {"engine": identity} for identity in _engines(record).values()}
    used = {Space("completions", one.space) for one in asked}
    spaces = {space: of for space, of in about.items() if space in used}
    files = open_store(config.store_folder, spaces, began=first_began(storage))
    known = stored_completions(files, list(asked))
    new = {one: made for one, made in asked.items() if one.key not in known}
    put_completions(files, new)
    return len({one.key for one in new})


def _unknown(config: Config, record: Mapping[str, Any]) -> str | None:
    """Returns why it is not known where answers belong; None: it is."""
    if not _engines(record):
        return "its record does not say of which engines"
    store = config.own_store  # records of before have it relative to the folder of the start
    if store is None or remote(store) or Path(store).is_absolute() or VERSION in open_storage(store).folders():
        return None
    return f"its store, {store}, is not in this folder; prune where it was started"


def _is_fact(row: Mapping[str, Any]) -> bool:
    """Returns whether the store takes a row: one that was asked for here, with a text, and is known by its engine."""
    return row["start"] != REUSED and bool((row["text"] or "").strip()) and "/" in (row.get("variables") or "")


def _engines(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the identities of the engines that are no recordings: of "" (the common one), strategies and steps."""
    known = record.get("identity") or {}
    rewrite, judge = known.get("rewrite") or {}, known.get("judge") or {}
    found = {"": rewrite.get("engine"), **(rewrite.get("engines") or {})}
    found |= {f"step {name}": known[name].get("engine") for name in _OF_STEPS if name in known}
    found |= {f"judge {name}": one.get("engine") for name, one in judge.items()}
    return {name: one for name, one in found.items() if one and one.get("kind") != "recorded"}


def _made_by(record: Mapping[str, Any], request: str) -> Iterator[dict[str, Any]]:
    """Yields the engines that may have answered a request, each once."""
    engines, own = _engines(record), ((record.get("identity") or {}).get("rewrite") or {}).get("engines") or {}
    if request in own:
        yield from [engines[request]] if request in engines else []
        return
    others = {digest(one): one for name, one in engines.items() if name not in own}
    yield from others.values()


def _has_web(storage: Storage, committed: set[int]) -> bool:
    """Returns whether a shard without a commit has answers of the web."""
    numbers = [entry.key.split("/")[1] for entry in storage.list(OF_THE_WEB.folder) if entry.key.endswith(".parquet")]
    return any(not (number.isdecimal() and int(number) in committed) for number in numbers)
