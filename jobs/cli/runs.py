"""The verb runs: the list of runs, a query in all of them, and the removal of old ones."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.cli.inputs import check_nothing_set, named_config, seconds_of
from jobs.cli.log_verbs import load
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.runs.old.prune import OldRun


def runs(options: argparse.Namespace) -> int:
    """Lists the runs of a config, or below an output; looks a query up; removes the old ones."""
    from jobs.measure.run_list import find_output

    _check(options)
    config = load(options) if named_config(options.config) else None
    if config is None:
        check_nothing_set(options, options.config)
    output, name = find_output(options.config) if config is None else (open_storage(config.output), config.name)
    if options.prune:
        return _prune(options, output, name)
    if options.query is not None:
        return _look_up(options, output, name)
    config_file = None if config is None else options.config
    return _list(options, output, name, config_file)


def _check(options: argparse.Namespace) -> None:
    """Refuses arguments that do not go together."""
    for flag, value in (("--keep", options.keep), ("--dry-run", options.dry_run)):
        if value and not options.prune:
            raise ConfigError("argument", f"{flag}: goes with --prune alone; add it, or leave {flag} out")
    if options.prune and options.query is not None:
        raise ConfigError("argument", "--query and --prune are two things; give one")
    other = "--prune" if options.prune else "--query" if options.query is not None else None
    if options.last is not None and other is not None:
        raise ConfigError("argument", f"--last does not go with {other}; leave one of them out")
    if options.last is not None and options.last < 1:
        raise ConfigError("argument", f"--last {options.last}: is less than 1; give 1 or more")
    if options.prune and options.keep is None:
        raise ConfigError("argument", "--keep is missing: how long a run stays after its last work; give --keep 30d")
    if options.keep is not None:
        seconds_of("--keep", options.keep)


def _list(options: argparse.Namespace, output: Storage, name: str | None, config_file: str | None) -> int:
    from jobs.measure.run_list import list_runs, prices_of, runs_table

    listed = list_runs(output, name, prices_of(options.prices, config_file))
    if not listed:
        raise _missing(output, name)
    listed = listed[-(options.last or 0) :]
    values = {"output": output.root, "runs": [run.values() for run in listed]}
    return show(options, lambda: values, lambda: runs_table(listed))


def _look_up(options: argparse.Namespace, output: Storage, name: str | None) -> int:
    from jobs.pages.runs import looked_up_page
    from jobs.runs.look_up import look_up

    found = look_up(output, name, options.query)
    if not found.runs:
        raise _missing(output, name)
    return show(options, found.values, lambda: looked_up_page(found))


def _prune(options: argparse.Namespace, output: Storage, name: str | None) -> int:
    from jobs.pages.runs import pruning_page, removal_words
    from jobs.runs.old.prune import prune

    def say(one: OldRun) -> None:
        print(f"dmqr runs: {removal_words(one)}", file=sys.stderr)

    keep = seconds_of("--keep", options.keep)
    found = prune(output, name, keep, time.time(), dry_run=options.dry_run, on_begin=say)
    if not found.going and not found.kept:
        raise _missing(output, name)
    values = found.values() | {"dry_run": options.dry_run}
    return show(options, lambda: values, lambda: pruning_page(found, dry_run=options.dry_run))


def _missing(output: Storage, name: str | None) -> ConfigError:
    of = "" if name is None else f" of the name {name}"
    return ConfigError("run-missing", f"{output.root}: no run{of} lies there; start one with: dmqr run CONFIG")
