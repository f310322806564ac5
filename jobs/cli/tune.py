"""The verb tune: learns weights and a selection from a run, says what they are worth, and writes a config."""

from __future__ import annotations

import argparse

from cluster.errors import ConfigError
from jobs.cli.printing import show


def tune(options: argparse.Namespace) -> int:
    """Tunes a run's config and writes it."""
    from jobs.cli.beside import judgements_of
    from jobs.pages.tune import tuning_page, tuning_values
    from jobs.runs.folder import open_run
    from jobs.terminal.log_files import logged
    from jobs.tune.tune import tune
    from jobs.tune.written import check_out, write_tuned

    folder = open_run(options.run)
    out = options.out or f"{folder.config.name}-tuned.yaml"
    check_out(out)
    judgements = judgements_of(options, folder, "QRELS")
    if judgements is None:
        raise ConfigError("judgements", f"{folder.storage.root}: its config names no judgements that are here; give QRELS")
    with logged("tune") as (progress, _):
        tuning = tune(folder, judgements, options.folds, options.seed, progress.phase)
    files = write_tuned(folder, tuning, judgements.path, out)
    values = lambda: tuning_values(tuning, out) | {"files": files}  # noqa: E731
    return show(options, values, lambda: tuning_page(tuning, out), out, of=folder)
