"""The verb export."""

from __future__ import annotations

import argparse
from typing import Any

from cluster.errors import ConfigError
from jobs.cli.inputs import ground_truth
from jobs.cli.printing import show


def export(options: argparse.Namespace) -> int:
    """Writes the look-up rows of a finished run as a version, and with --promote makes it current."""
    from jobs.pages.export import export_page
    from jobs.runs.folder import open_run
    from jobs.terminal.log_files import logged
    from jobs.verbs.export import exported

    for flag, value in (("--qrels", options.qrels), ("--key", options.key), ("--set", options.set)):
        if value and not options.promote:
            raise ConfigError("argument", f"{flag}: is of a promotion; give --promote, too")
    run, bounds = open_run(options.run), _bounds(options.set)
    truth = ground_truth(options, "--qrels") if options.promote else None
    with logged("export") as (progress, _):
        done = exported(run, options.to, options.hits, bounds, truth, progress.phase)
    return show(options, done.values, lambda: export_page(done), done.place)


def _bounds(words: list[str]) -> dict[str, Any]:
    """Returns key of `publish` -> value, of words like `publish.coverage=0.9`."""
    from jobs.config.load import given_setting

    found: dict[str, Any] = {}
    for word in words:
        name, value = given_setting(word)
        if not name.startswith("publish."):
            raise ConfigError("argument", f"--set {word}: is no bound; give one like publish.coverage=0.9")
        found[name.removeprefix("publish.")] = value
    return found
