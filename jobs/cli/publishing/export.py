"""The verb export."""

from __future__ import annotations

import argparse

from jobs.cli.command_line.publish_arguments import FORMAT_OPTIONS
from jobs.cli.printing import show


def export(options: argparse.Namespace) -> int:
    """Writes the look-up rows of a finished run, as a version, to a target."""
    from jobs.pages.publishing.versions import export_page
    from jobs.runs.folder import open_run
    from jobs.terminal.log_files import logged
    from jobs.verbs.publishing import ExportArguments, exported

    names = ("to", "formats", "strategies", "min_added", "hits", "buckets", "salt")
    settings = {name: value for name in names if (value := getattr(options, name)) is not None}
    of_formats = {name: value for name in FORMAT_OPTIONS if (value := getattr(options, name)) is not None}
    given = ExportArguments(settings, options.version, options.since, of_formats, (options.url_env, options.api_key_env))
    run = open_run(options.run)
    with logged("export") as (progress, _):
        done = exported(run, given, progress.phase)
    return show(options, done.values, lambda: export_page(done), done.place)
