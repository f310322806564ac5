"""The verb store: what keeps a store small and clean."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError
from jobs.cli.inputs import check_nothing_set, named_config, seconds_of
from jobs.cli.log_verbs import load
from jobs.cli.printing import show

if TYPE_CHECKING:
    from cluster.storage import Storage
    from jobs.chain.store.files import Space
    from jobs.store.collect import Collected
    from jobs.store.compact import Compacted


class _Place(NamedTuple):
    """A store, where runs lie, and the oldest time of a row that counts (`store_ttl`)."""

    storage: Storage
    output: Storage | None
    oldest: int


def store(options: argparse.Namespace) -> int:
    """Does what the action says."""
    return _collect(options) if options.action == "gc" else _forget(options)


def _collect(options: argparse.Namespace) -> int:
    from jobs.pages.store import collected_page
    from jobs.store.collect import collect
    from jobs.store.compact import compact
    from jobs.terminal.log_files import logged

    place, dry, unused = _place(options), options.dry_run, seconds_of("--unused", options.unused)
    compacted: list[Compacted] = []
    if not dry:
        with logged("store") as (progress, _):
            compacted = compact(
                place.storage,
                oldest=place.oldest,
                on_begin=lambda one: progress.phase(f"compacting {one.space.kind} {one.space.name[:12]}"),
            )
    found = collect(place.storage, unused, oldest=place.oldest, dry_run=dry)
    values = {
        "store": place.storage.root, "dry_run": dry, "compacted": [_of_space(one) for one in compacted],
        "collected": [_of_space(one) for one in found],
    }  # fmt: skip
    page = lambda: collected_page(compacted, found, options.unused, dry_run=dry)  # noqa: E731
    return show(options, lambda: values, page, place.storage.root)


def _forget(options: argparse.Namespace) -> int:
    from jobs.pages.store import forgotten_page, holding_runs
    from jobs.store.forget import WhatToForget, forget

    place = _place(options)
    others = "none" if options.own else "all" if options.all else "some"
    found = forget(place.storage, WhatToForget(options.query, options.context, others), place.output, dry_run=options.dry_run)
    values = {
        "store": place.storage.root, "query_id": found.query_id, "others": sorted(found.others),
        "rows": dict(found.rows), "files": found.files, "runs": found.runs,
        "dry_run": options.dry_run,
    }  # fmt: skip
    page = lambda: forgotten_page(found, dry_run=options.dry_run)  # noqa: E731
    return show(options, lambda: values, page, *holding_runs(found), place.storage.root)


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
        return _Place(storage, open_storage(config.output), oldest_of(config.store_lifetime, time.time()))
    check_nothing_set(options, given)
    storage = open_storage(given)
    if VERSION not in storage.folders() and VERSION in (below := open_storage(storage.url("store"))).folders():
        storage = below  # an output was given
    check_store(storage, given)
    above, _, name = storage.root.rpartition("/")
    return _Place(storage, open_storage(above) if name == "store" else None, 0)


def _of_space(one: Compacted | Collected) -> dict[str, Any]:
    values = one._asdict()
    space: Space = values.pop("space")
    return space._asdict() | values
