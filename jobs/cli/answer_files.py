"""The files with answers that `evaluate` writes for others."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from jobs.cli.inputs import prices_of

if TYPE_CHECKING:
    from jobs.measure.answers.frame import GoldAnswers
    from jobs.measure.export.answers.written import WrittenAnswers
    from jobs.runs.folder import RunFolder


def answer_files(options: argparse.Namespace, folder: RunFolder, gold: GoldAnswers | None) -> list[WrittenAnswers]:
    """Writes the files that `--trec-rag`, `--ragas`, `--rows`, `--nuggetizer` and `--umbrela` name; returns them.

    Raises:
        ConfigError: there are no answers, or no judgements, the ablation has no arm `--arm`, or a name has the wrong ending.
        RetrieverError: the texts of documents are gone.
    """
    judged = _judged_files(options, folder)
    if not (options.trec_rag or options.ragas or options.rows or options.nuggetizer):
        for option, value in (("--arm", options.arm), ("--prices", options.prices)):
            if value is not None:
                of = "--trec-rag, --ragas, --rows and --nuggetizer"
                raise ConfigError("argument", f"{option} {value}: is of {of}; leave it out")
        return judged
    from cluster.costs import prices_version
    from jobs.measure.export.answers.answered import answered_arm
    from jobs.measure.export.answers.full_rows import write_full_rows
    from jobs.measure.export.answers.nuggetizer import write_nuggetizer
    from jobs.measure.export.answers.ragas import write_ragas
    from jobs.measure.export.answers.trec_rag import write_trec_rag
    from jobs.measure.export.answers.written import check_rows_ending

    for option, path in (("--ragas", options.ragas), ("--rows", options.rows)):
        if path:
            check_rows_ending(path, option)
    if options.arm is not None and not folder.is_ablation:
        raise ConfigError("argument", f"--arm {options.arm}: {folder.storage.root} is a run, which has no arms; leave it out")
    by_query = answered_arm(folder, options.arm, "query_id", gold)
    by_topic, found = answered_arm(folder, options.arm, options.key, gold), []
    if options.trec_rag:
        found.append(write_trec_rag(options.trec_rag, by_topic))
    if options.nuggetizer:
        found.append(write_nuggetizer(options.nuggetizer, by_topic))
    if options.ragas:
        found.append(write_ragas(options.ragas, by_query))
    if options.rows:
        prices = prices_of(options, folder)
        path = Path(options.prices or Path(folder.record.get("config_file", "")).with_name("prices.yaml"))
        source = None if prices is None else " sha256 ".join(prices_version(path).values())
        found.append(write_full_rows(options.rows, by_query, prices, source))
    return found + judged


def _judged_files(options: argparse.Namespace, folder: RunFolder) -> list[WrittenAnswers]:
    from jobs.measure.export.answers.umbrela import write_umbrela

    return [write_umbrela(options.umbrela, folder, options.key)] if options.umbrela else []


def file_values(files: Sequence[WrittenAnswers]) -> dict[str, Any]:
    """Returns the files as JSON-able values, under `files`; nothing without any."""
    return {"files": [one._asdict() for one in files]} if files else {}
