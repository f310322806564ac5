"""What each verb does with its arguments. A verb imports what it needs when it is called, so that the others start quickly."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ConfigError, DmqrError
from cluster.run.shards import SUCCESS
from jobs.cli.driving import again, drive, finished, load, warn
from jobs.cli.printing import print_json, print_page, show
from jobs.cli.refusal import say
from jobs.cli.submitted import logs, stop

__all__ = ["diff", "index", "logs", "plan", "run", "runs", "stop", "try_"]

if TYPE_CHECKING:
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


def index(options: argparse.Namespace) -> int:
    """Builds the indexes that a config names."""
    from jobs.index.index import index
    from jobs.job.indexes import encoder_warnings
    from jobs.terminal.log_files import logged

    config = load(options)
    with logged("index") as (progress, _):
        built = index(config, options.corpus, progress)
        warn(encoder_warnings(config))
    if options.json:
        print_json(built)
    else:  # lines with paths, which are not broken
        print("\n".join(f"{one['index']}: {one['documents']:,} documents, {one['done']}" for one in built))
    return 0


def try_(options: argparse.Namespace) -> int:
    """Sends a query through every stage, or one after the other."""
    from jobs.config.load import load_config
    from jobs.pages.try_one import page
    from jobs.terminal.log_files import logged
    from jobs.try_one.ask import greeting, queries
    from jobs.try_one.given import Given, read_values
    from jobs.try_one.loaded import LoadedConfig
    from jobs.try_one.trial import trial_values

    given = Given(options.context, read_values(options.value))
    configs = [load_config(path, options.set, options.date) for path in options.config]
    labels = [Path(path).stem for path in options.config]
    labels = labels if len(set(labels)) == len(labels) else list(options.config)
    single, code = options.query is not None, 0
    asked = iter([options.query]) if single else queries()
    with ExitStack() as stack:
        with logged("try") as (progress, _):
            loaded = [stack.enter_context(LoadedConfig(*of, given)) for of in zip(configs, options.config, labels, strict=True)]
            warn(dict.fromkeys(words for one in loaded for words in one.warnings))
            for one in [] if single else loaded:
                one.load(progress.phase)
        if not single and sys.stdin.isatty():
            print(greeting(loaded), file=sys.stderr)
        for query in asked:
            try:
                with logged("try") as (progress, _):
                    trials = [one.try_query(query, progress.phase) for one in loaded]
            except DmqrError as error:
                if single:
                    raise
                code = say("try", error, 0 if sys.stdin.isatty() else 1)
                continue
            if options.json:
                print_json([trial_values(trial) for trial in trials], lines=not single)
            else:
                print_page(page(trials, options.prompts))
    return code


def plan(options: argparse.Namespace) -> int:
    """Shows what a run would do and cost."""
    from jobs.config.ablate import AblateSettings
    from jobs.job.prepare import prepare
    from jobs.plan.plan import plan, plan_table
    from jobs.run.ablation import prepare_ablation
    from jobs.terminal.log_files import logged

    config = load(options)
    prepared = prepare(config, options.config)
    ablation = None if config.ablate == AblateSettings() else prepare_ablation(config, options.config)
    with logged("plan") as (progress, _):
        warn(prepared.warnings)
        planned = plan(prepared, progress, ablation)
    return show(options, lambda: planned, lambda: plan_table(planned))


def run(options: argparse.Namespace) -> int:
    """Brings a run to its end, measures it and writes its report."""
    from jobs.cli.report import write_report
    from jobs.job.prepare import prepare
    from jobs.pages.report.judged import measured
    from jobs.pages.summary import closing_table, closing_values
    from jobs.run.job import run_of
    from jobs.run.run import run
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.logs import event

    prepared = prepare(load(options), options.config)
    before = prepared.storage.stat(SUCCESS) is not None
    command = again(options)

    def closed(progress: LiveDisplay, log: LogFiles) -> tuple[RunFolder, Evaluation | None, list[str]]:
        progress.phase("evaluating and writing the report")
        folder = open_run(prepared.storage.root)
        evaluation, judged = None, None
        with finished(folder, log, "the run is finished, its evaluation failed") as said:
            evaluation, judged = measured(folder, prepared.judgements)
        if evaluation is not None and evaluation.warning is not None:
            event("warning", evaluation.warning, logging.WARNING)
        if not before or folder.storage.get(REPORT) is None:  # one that is there may be of a moment before the end
            with finished(folder, log, "the report was not written"):
                write_report(folder, prepared.prices, evaluation, judged)
        return folder, evaluation, said

    found = drive("run", prepared, command, lambda progress, log: run(run_of(prepared), progress, command, log), closed)
    if isinstance(found, int):
        return found
    folder, evaluation, said = found
    known = folder, prepared.prices, evaluation, said
    return show(options, lambda: closing_values(*known), lambda: closing_table(*known), folder.storage.root)


def runs(options: argparse.Namespace) -> int:
    """Lists the runs of a config, or below an output."""
    from cluster.storage import open_storage
    from jobs.measure.run_list import find_output, list_runs, prices_of, runs_table

    config = load(options) if options.config.endswith((".yaml", ".yml")) else None
    if config is None and (options.set or options.date):
        given = "--set" if options.set else "--date"
        raise ConfigError("argument", f"{given}: {options.config} is no config, which it would change; leave it out")
    output, name = find_output(options.config) if config is None else (open_storage(config.output), config.name)
    listed = list_runs(output, name, prices_of(options.prices, None if config is None else options.config))
    if not listed:
        of = "" if name is None else f" of the name {name}"
        raise ConfigError("run-missing", f"{output.root}: no run{of} lies there; start one with: dmqr run CONFIG")
    values = {"output": output.root, "runs": [run.values() for run in listed]}
    return show(options, lambda: values, lambda: runs_table(listed))


def diff(options: argparse.Namespace) -> int:
    """Compares two runs."""
    from jobs.cli.beside import check_matched, check_samples, judgements_of, prices_of
    from jobs.measure.diff.diff import diff, diff_values
    from jobs.pages.diff import diff_page
    from jobs.runs.folder import open_run

    check_samples(options)
    a, b = open_run(options.a), open_run(options.b)
    for one in (a, b):
        if one.is_ablation:
            root = one.storage.root
            raise ConfigError("argument", f"{root}: is an ablation, whose arms are compared in its report; give two runs")
    judgements = judgements_of(options, b, "QRELS")
    found = diff(a, b, judgements, prices_of(options, b), options.samples, options.measures)
    if judgements is not None and found.quality is not None and (options.qrels or options.key):
        in_a_log = found.quality.judged - min(found.quality.missing)  # of another log or key is what neither log has
        check_matched(judgements, found.quality.warning, in_a_log)
    return show(options, lambda: diff_values(found), lambda: diff_page(found))
