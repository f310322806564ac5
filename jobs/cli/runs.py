"""The verb runs: the list of runs, a query in all of them, and the removal of old ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.cli.inputs import check_nothing_set, named_config, seconds_of
from jobs.cli.log_verbs import load
from jobs.cli.printing import print_json, show

if TYPE_CHECKING:
    from jobs.measure.nights.nights import NoNight
    from jobs.runs.old.prune import OldRun


def runs(options: argparse.Namespace) -> int:
    """Lists the runs of a config, or below an output; writes a page over them; looks a query up; removes the old ones."""
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
    if options.html is not None:
        return _nights(options, output, name, config_file)
    return _list(options, output, name, config_file)


def _check(options: argparse.Namespace) -> None:
    """Refuses arguments that do not go together."""
    for flag, value in (("--keep", options.keep), ("--dry-run", options.dry_run)):
        if value and not options.prune:
            raise ConfigError("argument", f"{flag}: goes with --prune alone; add it, or leave {flag} out")
    if options.prune and options.query is not None:
        raise ConfigError("argument", "--query and --prune are two things; give one")
    other = "--prune" if options.prune else "--query" if options.query is not None else None
    for flag, value in (("--html", options.html), ("--last", options.last)):
        if value is not None and other is not None:
            raise ConfigError("argument", f"{flag} does not go with {other}; leave one of them out")
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


def _nights(options: argparse.Namespace, output: Storage, name: str | None, config_file: str | None) -> int:
    """Writes the page over the nights of a name; prints where it is, or its figures."""
    from jobs.measure.nights.nights import nights
    from jobs.measure.run_list import prices_of
    from jobs.pages.nights.page import nights_page
    from jobs.verbs.report import write_page

    name = _one_name(output) if name is None else name
    found = nights(output, name, prices_of(options.prices, config_file), options.last)
    if not found.nights:
        raise _no_night(output, found.left_out) if found.left_out else _missing(output, name)
    write_page(options.html, nights_page(found))
    if options.json:
        print_json(found.values())
    else:
        print(options.html)
    return 0


def _one_name(output: Storage) -> str:
    """Returns the name of the runs below an output.

    Raises:
        ConfigError: There are none, or they are of several.
    """
    from jobs.runs.folder import find_runs

    names = sorted({record.get("config", {}).get("name", folder) for folder, record in find_runs(output)})
    if not names:
        raise _missing(output, None)
    if len(names) > 1:
        given = f"give a config, or {output.url(names[0])}"
        raise ConfigError("argument", f"--html: {output.root} has runs of {len(names)} names, and a page is of one; {given}")
    return str(names[0])


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


def _no_night(output: Storage, left: Sequence[NoNight]) -> ConfigError:
    one, more = left[0], len(left) - 1
    why = f"{one.run_id}: {one.why}" + (f"; and {more} more" if more else "")
    return ConfigError("argument", f"--html: {output.root} has no night ({why}); make one with: dmqr run CONFIG")
