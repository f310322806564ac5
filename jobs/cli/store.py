"""The verb store: what a store has and saves, and what keeps it small and clean."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError
from jobs.cli.inputs import check_nothing_set, named_config, seconds_of
from jobs.cli.log_verbs import load
from jobs.cli.printing import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.storage import Storage
    from jobs.chain.arms.shared_work import Reading
    from jobs.chain.store.files import Space, StoreFiles
    from jobs.config.config import Config
    from jobs.store.collect import Collected
    from jobs.store.compact import Compacted


class _Place(NamedTuple):
    """A store, the config that names it, where runs lie, and how old a row may be that counts (`store_ttl`)."""

    storage: Storage
    config: Config | None
    output: Storage | None
    oldest: int


def store(options: argparse.Namespace) -> int:
    """Does what the action says."""
    actions = {
        "stats": _stats, "compact": _compact, "gc": _collect, "forget": _forget, "import": _import, "export": _export
    }  # fmt: skip
    return actions[options.action](options)


def _stats(options: argparse.Namespace) -> int:
    from cluster.costs import load_prices
    from jobs.pages.store import stats_page
    from jobs.store.stats import store_stats

    place = _place(options)
    if options.prices and not Path(options.prices).exists():
        raise ConfigError("argument", f"--prices {options.prices}: no such file; give one like configs/prices.yaml")
    beside = Path(options.config).with_name("prices.yaml") if place.config is not None else Path("prices.yaml")
    stats = store_stats(place.storage, place.output, load_prices(Path(options.prices or beside)))
    values = {"store": place.storage.root} | stats.values()
    return show(options, lambda: values, lambda: stats_page(stats), place.storage.root)


def _compact(options: argparse.Namespace) -> int:
    from jobs.pages.store import compacted_page
    from jobs.store.compact import GRACE_SECONDS, compact
    from jobs.terminal.log_files import logged

    place = _place(options)
    grace = GRACE_SECONDS if options.grace is None else seconds_of("--grace", options.grace)
    with logged("store") as (progress, _):
        done = compact(
            place.storage,
            oldest=place.oldest,
            grace=grace,
            on_begin=lambda one: progress.phase(f"compacting {one.space.kind} {one.space.name[:12]}"),
        )
    values = {"store": place.storage.root, "compacted": [_of_space(one) for one in done]}
    return show(options, lambda: values, lambda: compacted_page(done), place.storage.root)


def _collect(options: argparse.Namespace) -> int:
    from jobs.pages.store import collected_page
    from jobs.store.collect import collect

    place, dry = _place(options), options.dry_run
    found = collect(place.storage, seconds_of("--unused", options.unused), oldest=place.oldest, dry_run=dry)
    values = {"store": place.storage.root, "dry_run": dry, "collected": [_of_space(one) for one in found]}
    page = lambda: collected_page(found, options.unused, dry_run=dry)  # noqa: E731
    return show(options, lambda: values, page, place.storage.root)


def _forget(options: argparse.Namespace) -> int:
    from jobs.pages.store import forgotten_page, holding_runs
    from jobs.store.forget import WhatToForget, forget

    place = _place(options)
    others = "none" if options.own else "all" if options.all else "some"
    found = forget(place.storage, WhatToForget(options.second, options.context, others), place.output, dry_run=options.dry_run)
    values = {
        "store": place.storage.root, "query_id": found.query_id, "filtered": sorted(found.filtered),
        "others": sorted(found.others), "rows": dict(found.rows), "files": found.files, "runs": found.runs,
        "dry_run": options.dry_run,
    }  # fmt: skip
    page = lambda: forgotten_page(found, dry_run=options.dry_run)  # noqa: E731
    return show(options, lambda: values, page, *holding_runs(found), place.storage.root)


def _import(options: argparse.Namespace) -> int:
    from jobs.store.imports import import_recorded

    with tempfile.TemporaryDirectory(prefix="dmqr-store-") as folder:
        readings, files = _opened(options, folder, filters=False)
        done = import_recorded(readings, files, options.second)
    values = {"store": files.root} | done._asdict()
    words = f"{done.queries:,} queries: {done.completions:,} completions are stored now, {done.known:,} were before"
    words += f", {done.missing:,} requests have no answer in the recording"
    return show(options, lambda: values, lambda: words, files.root)


def _export(options: argparse.Namespace) -> int:
    from cluster.storage import open_storage
    from jobs.store.exports import check_export, export_recorded

    check_export(options.out)
    with tempfile.TemporaryDirectory(prefix="dmqr-store-") as folder:
        readings, files = _opened(options, folder)
        config = _place(options).config
        assert config is not None
        done = export_recorded(readings, files, open_storage(config.output), config.name, options.out)
    values = {"store": files.root, "out": options.out} | done._asdict()
    words = f"{done.completions:,} completions of {done.queries:,} queries"
    words += f"; of {done.without:,} queries of the runs none is stored" if done.without else ""
    words += f"; {done.in_context:,} queries after earlier turns or with filters are left out" if done.in_context else ""
    return show(options, lambda: values, lambda: words, options.out)


def _opened(options: argparse.Namespace, folder: str, *, filters: bool = True) -> tuple[Sequence[Reading], StoreFiles]:
    """Returns the requests of a config's run, and its store; `folder` is a temporary one.

    Raises:
        ConfigError: There is no config or no store, or without `filters` the config has some.
    """
    from jobs.chain.arms.compile import compile_run
    from jobs.chain.store.files import open_store
    from jobs.chain.store.spaces import kept_spaces
    from jobs.job.prepare import prepare_query

    if not named_config(options.config):
        raise ConfigError("argument", f"{options.config}: is no config, whose requests are meant; give one")
    config = load(options)
    if config.store_folder is None:
        raise ConfigError("argument", f"{options.config}: its store is null, so there is none; set the folder of one")
    if config.retrieve.filters and not filters:
        words = "retrieve.filters: a recording has no values of them, so no run would find its answers; import without filters"
        raise ConfigError("argument", words)
    prepared = prepare_query(config, options.config, folder)
    work = compile_run(prepared).work
    spaces = {space: about for space, about in kept_spaces(prepared.config, work).items() if space.kind == "completions"}
    return work.readings, open_store(config.store_folder, spaces, lifetime=config.store_lifetime)


def _place(options: argparse.Namespace) -> _Place:
    """Returns the store that a config, or a folder, names.

    Raises:
        ConfigError: there is none.
    """
    from cluster.storage import open_storage
    from jobs.chain.store.files import oldest_of
    from jobs.chain.store.layout import VERSION
    from jobs.store.contents import check_store

    given = options.config
    if named_config(given):
        config = load(options)
        if config.store_folder is None:
            raise ConfigError("argument", f"{given}: its store is null, so there is none; give the folder of one")
        storage = open_storage(config.store_folder)
        check_store(storage, config.store_folder)
        return _Place(storage, config, open_storage(config.output), oldest_of(config.store_lifetime, time.time()))
    check_nothing_set(options, given)
    storage = open_storage(given)
    if VERSION not in storage.folders() and VERSION in (below := open_storage(storage.url("store"))).folders():
        storage = below  # an output was given
    check_store(storage, given)
    above, _, name = storage.root.rpartition("/")
    return _Place(storage, None, open_storage(above) if name == "store" else None, 0)


def _of_space(one: Compacted | Collected) -> dict[str, Any]:
    values = one._asdict()
    space: Space = values.pop("space")
    return space._asdict() | values
