"""The verb ablate."""

from __future__ import annotations

import argparse

from jobs.cli.driving import again, drive, load
from jobs.cli.printing import print_json, print_page


def ablate(options: argparse.Namespace) -> int:
    """Gathers what the arms of a config need, answers each, compares them and writes the report."""
    from jobs.ablate.prepare import prepare_ablation
    from jobs.compare.closing import closing_page, closing_values, compared
    from jobs.run.run import run

    ablation = prepare_ablation(load(options), options.config)
    prepared, command = ablation.prepared, again(options, "ablate")
    found = drive(
        "ablate",
        prepared,
        command,
        lambda progress, log: run(prepared, progress, command, log, ablation.work),
        lambda progress, log: compared(prepared, progress, log),
    )
    if isinstance(found, int):
        return found
    if options.json:
        print_json(closing_values(found))
    else:
        print_page(closing_page(found))
        print(found.folder.storage.root)
    return 0
