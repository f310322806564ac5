"""The verb runs: the list of runs, and how far one is, also one that another machine works on."""

from __future__ import annotations

import argparse

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.cli.inputs import check_nothing_set, named_config
from jobs.cli.log_verbs import load
from jobs.cli.printing import show


def runs(options: argparse.Namespace) -> int:
    """Lists the runs of a config, or below an output; shows how far one run is, by its folder."""
    from jobs.measure.run_list import find_output
    from jobs.pages.status import status_page
    from jobs.runs.status import read_status, status_values

    if options.last is not None and options.last < 1:
        raise ConfigError("argument", f"--last {options.last}: is less than 1; give 1 or more")
    config = load(options) if named_config(options.config) else None
    if config is None:
        check_nothing_set(options, options.config)
        if (status := read_status(options.config)) is not None:
            if not options.json:
                print(status.folder)
            return show(options, lambda: status_values(status), lambda: status_page(status))
    output, name = find_output(options.config) if config is None else (open_storage(config.output), config.name)
    config_file = None if config is None else options.config
    return _list(options, output, name, config_file)


def _list(options: argparse.Namespace, output: Storage, name: str | None, config_file: str | None) -> int:
    from jobs.measure.run_list import list_runs, prices_of, runs_table

    listed = list_runs(output, name, prices_of(options.prices, config_file))
    if not listed:
        raise _missing(output, name)
    listed = listed[-(options.last or 0) :]
    values = {"output": output.root, "runs": [run.values() for run in listed]}
    return show(options, lambda: values, lambda: runs_table(listed))


def _missing(output: Storage, name: str | None) -> ConfigError:
    of = "" if name is None else f" of the name {name}"
    return ConfigError("run-missing", f"{output.root}: no run{of} lies there; start one with: dmqr run CONFIG")
