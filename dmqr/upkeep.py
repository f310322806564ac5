"""Upkeep of nightly runs: their list, versions for a search, the store."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from dmqr.face import caller
from dmqr.previews import config_or_none
from dmqr.quality import Truth
from dmqr.results import Folder, Result, Run
from dmqr.whole_jobs import Settings

if TYPE_CHECKING:
    from cluster.storage import Storage
    from jobs.log.judgements import Key


def runs(
    output: Folder,
    /,
    *,
    date: str | None = None,
    prices: str | None = None,
    last: int | None = None,
    out: str | None = None,
    **settings: Any,
) -> Result:
    """Lists runs with quality and cost, or shows how far one is.

    Args:
        output: a config, for the runs of its name; an output, or <output>/<name>; or a run's folder, for how far it is
        last: only the newest N runs (default: all)
        out: writes the list as a page to FILE, too

    Example:
        dmqr runs configs/quickstart.yaml
    """
    from cluster.storage import open_storage
    from jobs.measure.run_list import find_output, list_runs, prices_of
    from jobs.pages.render import write_page
    from jobs.pages.upkeep import runs_page, runs_table, status_page
    from jobs.runs.status import read_status, status_values

    if last is not None and last < 1:
        raise ConfigError("argument", f"last {last}: is less than 1; give 1 or more")
    given, config_file = os.fspath(output), None
    name: str | None
    if (named := config_or_none(given, settings, date)) is not None:
        config, config_file = named
        storage, name = open_storage(config.output), config.name
    elif (status := read_status(given)) is not None:
        return Result(status_values(status), status_page(status), title=status.folder)
    else:
        storage, name = find_output(given)
    listed = list_runs(storage, name, prices_of(prices, config_file))[-(last or 0) :]
    if not listed:
        of_name = "" if name is None else f" of the name {name}"
        raise ConfigError("run-missing", f"{storage.root}: no run{of_name} lies there; start one with: dmqr run CONFIG")
    if out is not None:
        write_page(out, runs_page(storage.root, listed))
    return Result({"output": storage.root, "runs": listed}, runs_table(listed).terminal())


def export(
    run: Run | Folder,
    to: str,
    /,
    *,
    hits: int = 10,
    promote: bool = False,
    qrels: Folder | None = None,
    key: Key | None = None,
    **settings: float | None,
) -> Result:
    """Writes a run's rows for a search, and promotes good ones.

    The rows of a finished run are a version; it becomes current if errors, coverage and quality are within bounds.

    Args:
        run: a run's folder, or <output>/<name> for its newest finished run; in Python also a `Run`
        to: where versions lie, here or on S3
        settings: with --promote: another bound, like publish.coverage=0.9; null: none
        hits: documents of a query at most (default: 10)
        promote: make the version current, if its checks hold
        qrels: with --promote: judgements to check quality by (default: those of the run's config, else of its judge)

    Raises:
        DmqrError: a check failed (`code` is export), or the run, an argument or the target does not allow it.

    Example:
        dmqr export runs/quickstart --to runs/published --promote --set publish.error_rate=0.05
    """
    from jobs.config.load import changed_config
    from jobs.export.checks import DoneExport, checks, not_promoted
    from jobs.export.versions import current, export_version, open_target
    from jobs.export.versions import promote as make_current
    from jobs.log.judgements import check_here
    from jobs.pages.upkeep import export_page
    from jobs.runs.folder import open_run

    for name, value in (("qrels", qrels), ("key", key), ("settings", settings)):
        if value and not promote:
            raise ConfigError("argument", f"{name}: is of a promotion; give promote, too")
    bounds = {name.replace("__", "."): value for name, value in settings.items()}
    for name in bounds:
        if not name.startswith("publish."):
            raise ConfigError("argument", f"settings {name}: is no bound; give one like publish.coverage=0.9")
    face, folder = caller(), open_run(os.fspath(run) if isinstance(run, str | os.PathLike) else run.folder)
    if folder.is_ablation:
        what = "an ablation, with results of several arms"
        raise ConfigError("argument", f"{folder.storage.root}: is {what}; run the config as a whole run, and export that")
    if not folder.finished:
        raise ConfigError("argument", f"{folder.storage.root}: is not finished ({folder.state}); run it to its end first")
    if hits < 1:
        raise ConfigError("argument", f"hits {hits}: is less than 1; give 1 or more")
    publish = changed_config(folder.config, bounds, folder.storage.root).publish
    storage = open_target(to)
    with face.working("export") as display:
        version, existed = export_version(storage, folder, hits, display.phase)
        checked, now = [], current(storage) or {}
        if promote:
            display.phase("checking")
            if qrels is None and publish.quality_loss is not None:
                check_here(folder.config.evaluate.qrels, "publish.quality_loss", "--qrels")
            truth = Truth(folder, qrels, key, note=face.note)
            checked = checks(folder, version, publish, truth.judgements)
            if failed := [one for one in checked if not one.passed]:
                raise not_promoted(version, failed)
            now = {"version": version.run_id, "before": make_current(storage, version)}
    url = storage.url(version.run_id)
    done = DoneExport(version, url, existed, checked, now.get("version"), now.get("before"))
    return Result(done.values(), export_page(done), url, notes=face.notes)


def store_gc(store: Folder, /, *, unused: str, dry_run: bool = False, date: str | None = None, **settings: Any) -> Result:
    """Merges a store's files, and removes what is old or unused.

    Old are rows of more than store_ttl; unused is what no job has read for --unused.

    Args:
        store: a config, for its store, or the folder of a store
        unused: remove spaces (of one model, index or reranker) that no job has used for so long: 12h, 30d, 8w
        dry_run: only say what would go

    Example:
        dmqr store gc configs/quickstart.yaml --unused 30d
    """
    from cluster.settings import DURATION, duration_seconds
    from jobs.pages.upkeep import collected_page
    from jobs.store.collect import collect
    from jobs.store.compact import Compacted, compact

    storage, _, oldest = _stored(os.fspath(store), settings, date)
    if not re.fullmatch(DURATION, unused):
        raise ConfigError("argument", f"unused {unused}: is no duration; give one like 12h, 30d or 8w")
    compacted: list[Compacted] = []
    if not dry_run:
        with caller().working("store") as display:
            phase = lambda begun: display.phase(f"compacting {begun.space.kind} {begun.space.name[:12]}")  # noqa: E731
            compacted = compact(storage, oldest=oldest, on_begin=phase)
    collected = collect(storage, duration_seconds(unused), oldest=oldest, dry_run=dry_run)

    def rows(done: Sequence[Any]) -> list[dict[str, Any]]:
        return [row.space._asdict() | {name: value for name, value in row._asdict().items() if name != "space"} for row in done]

    values = {"store": storage.root, "dry_run": dry_run, "compacted": rows(compacted), "collected": rows(collected)}
    return Result(values, collected_page(compacted, collected, unused, dry_run=dry_run), storage.root)


def store_forget(
    store: Folder,
    query: str,
    /,
    *,
    context: str | None = None,
    own: bool = False,
    all: bool = False,
    dry_run: bool = False,
    date: str | None = None,
    **settings: Any,
) -> Result:
    """Removes a query, and all that has its words, from a store.

    Args:
        query: the query, in quotes
        context: the earlier turns, of the query after them
        own: leave the rows of other queries that have its words
        all: its words go, in however many other queries they stand
        dry_run: only say what would go

    Example:
        dmqr store forget configs/quickstart.yaml "a query" --dry-run
    """
    from jobs.pages.upkeep import forgotten_page, holding_runs
    from jobs.store.forget import WhatToForget, forget

    if own and all:
        raise ConfigError("argument", "own: leaves what --all takes; give one")
    storage, output, _ = _stored(os.fspath(store), settings, date)
    what = WhatToForget(query, context, "none" if own else "all" if all else "some")
    forgotten = forget(storage, what, output, dry_run=dry_run)
    values = {
        "store": storage.root, "query_id": forgotten.query_id, "others": sorted(forgotten.others),
        "rows": dict(forgotten.rows), "files": forgotten.files, "runs": forgotten.runs, "dry_run": dry_run,
    }  # fmt: skip
    return Result(values, forgotten_page(forgotten, dry_run=dry_run), *holding_runs(forgotten), storage.root)


def _stored(given: str, settings: Settings, date: str | None) -> tuple[Storage, Storage | None, int]:
    """Returns the store of a config or a folder, where its runs lie, and the oldest time of a row that counts (`store_ttl`)."""
    from cluster.storage import open_storage
    from jobs.chain.store.files import oldest_of
    from jobs.chain.store.layout import VERSION
    from jobs.store.contents import check_store

    if (named := config_or_none(given, settings, date)) is not None:
        config, _ = named
        if config.store_folder is None:
            raise ConfigError("argument", f"{given}: its store is null, so there is none; give the folder of one")
        storage = open_storage(config.store_folder)
        check_store(storage, config.store_folder)
        return storage, open_storage(config.output), oldest_of(config.store_lifetime, time.time())
    storage = open_storage(given)
    if VERSION not in storage.folders() and VERSION in (below := open_storage(storage.url("store"))).folders():
        storage = below  # an output was given
    check_store(storage, given)
    above, _, name = storage.root.rpartition("/")
    return storage, open_storage(above) if name == "store" else None, 0
