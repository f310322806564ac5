"""What each verb does with its arguments. A verb imports what it needs when it is called, so that the others start quickly."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, DmqrError, LogError, Stopped
from jobs.cli.export import export
from jobs.cli.inputs import check_samples, ground_truth, prices_of, shown_by
from jobs.cli.job_verbs import logs, stop
from jobs.cli.log_verbs import load, told_of
from jobs.cli.printing import print_json, print_page, show
from jobs.cli.refusal import say

__all__ = [
    "ablate", "diff", "export", "index", "logs", "plan", "run", "stop",
    "try_", "tune",
]  # fmt: skip


def index(options: argparse.Namespace) -> int:
    """Builds the indexes that a config names."""
    from jobs.index.index import index
    from jobs.job.indexes import encoder_warnings
    from jobs.terminal.log_files import logged
    from jobs.verbs.drive import warn

    config = load(options)
    with logged("index") as (progress, _):
        built = index(config, options.corpus, progress, replace=options.replace, dry_run=options.dry_run)
        warn(encoder_warnings(config, reranker=False))
    for name, one in config.retrieve.retrievers.items():
        if not one.indexed(name):
            print(f"dmqr index: retrieve.retrievers.{name} {one.without_index}", file=sys.stderr)
    if options.json:
        print_json(built)
    elif built:  # lines with paths, which are not broken
        names = [f"{one['collection']}: " if "collection" in one else "" for one in built]
        lines = [f"{one['index']}: {one['documents']:,} documents, {one['done']}" for one in built]
        print("\n".join(name + line for name, line in zip(names, lines, strict=True)))
        if left := [name for name in config.retrieve.collections if f"{name}: " not in names]:
            print(f"dmqr index: left as they are, without a corpus: {', '.join(left)}", file=sys.stderr)
    return 0


def try_(options: argparse.Namespace) -> int:
    """Sends a query through every stage, or one after the other."""
    from jobs.config.load import load_config
    from jobs.index.missing import ready_indexes
    from jobs.pages.try_one import page
    from jobs.terminal.log_files import logged
    from jobs.try_one.ask import greeting, queries
    from jobs.try_one.stages import LoadedConfig
    from jobs.try_one.trial import Given, read_values, trial_values
    from jobs.verbs.drive import warn

    given = Given(options.context, read_values(options.value))
    configs = [load_config(path, options.set, options.date) for path in options.config]
    labels = [Path(path).stem for path in options.config]
    labels = labels if len(set(labels)) == len(labels) else list(options.config)
    single, code = options.query is not None, 0
    asked = iter([options.query]) if single else queries()
    with ExitStack() as stack:
        with logged("try") as (progress, _):
            ready = partial(ready_indexes, progress=progress)
            every = zip(configs, options.config, labels, strict=True)
            loaded = [stack.enter_context(LoadedConfig(*of, given, ready)) for of in every]
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
    from jobs.plan.table import plan_table
    from jobs.terminal.log_files import logged
    from jobs.verbs.planned import planned

    config = load(options)
    with logged("plan") as (progress, _):
        found = planned(config, options.config, progress, options.sample, "--sample")
    return show(options, lambda: found.values, lambda: plan_table(found.values))


def run(options: argparse.Namespace) -> int:
    """Brings a run to its end, measures it and writes its report."""
    from jobs.job.prepare import prepare
    from jobs.runs.retry import prepare_retry
    from jobs.verbs.building import building
    from jobs.verbs.whole_run import whole_run

    config, measures = load(options), shown_by(options)
    with told_of(config, options, "run") as called:
        try:
            prepared = prepare(config, options.config, building(called, "run"))
        except LogError as error:
            if error.code != "log-empty" or not config.log.allow_empty:
                raise
            print("dmqr run: the log is empty: there is nothing to do (log.allow_empty)", file=sys.stderr)
            return 0
        prepared = prepared if options.retry is None else prepare_retry(prepared, options.retry)
        with _shown(options, lambda found: found.values(), lambda found: found.page()) as show_found:
            found = whole_run(prepared, called, measures)
    return show_found(found)


def ablate(options: argparse.Namespace) -> int:
    """Gathers what the arms of a config need, answers each, compares them and writes the report."""
    from jobs.pages.closing import closing_page, closing_values
    from jobs.run.ablation import prepare_ablation
    from jobs.verbs.building import building
    from jobs.verbs.whole_ablation import whole_ablation

    config, measures = load(options), shown_by(options)
    with told_of(config, options, "ablate") as called:
        job = prepare_ablation(config, options.config, building(called, "ablate"))
        with _shown(options, closing_values, closing_page) as show_found:
            found = whole_ablation(job, called, measures)
    return show_found(found)


@contextmanager
def _shown(
    options: argparse.Namespace, values: Callable[[Any], Any], page: Callable[[Any], Any]
) -> Iterator[Callable[[Any], int]]:
    """Yields the function that shows a finished job; shows one that is stopped with all its shards committed."""

    def show_found(found: Any) -> int:
        return show(options, partial(values, found), partial(page, found), found.folder.storage.root)

    try:
        yield show_found
    except Stopped as stop:
        if stop.found is not None:
            show_found(stop.found)
        raise


def diff(options: argparse.Namespace) -> int:
    """Compares two runs."""
    from jobs.measure.diff.diff import diff, diff_values
    from jobs.pages.diff import diff_page
    from jobs.runs.folder import open_run
    from jobs.verbs.inputs import check_matched, gold_of, judgements_of

    check_samples(options)
    a, b = open_run(options.a), open_run(options.b)
    for one in (a, b):
        if one.is_ablation:
            root = one.storage.root
            raise ConfigError("argument", f"{root}: is an ablation, whose arms are compared in its report; give two runs")
    given = ground_truth(options, "QRELS")
    judgements, prices, gold = judgements_of(given, b), prices_of(options, b), gold_of(given, b)
    found = diff(a, b, judgements, prices, options.samples, options.measures, gold)
    if judgements is not None and found.quality is not None and (options.qrels or options.key):
        in_a_log = found.quality.judged - min(found.quality.missing)  # of another log or key is what neither log has
        check_matched(judgements, found.quality.warning, in_a_log, found.quality.left_out)
    return show(options, lambda: diff_values(found), lambda: diff_page(found))


def tune(options: argparse.Namespace) -> int:
    """Tunes a run's config and writes it."""
    from jobs.pages.tune import tuning_page, tuning_values
    from jobs.runs.folder import open_run
    from jobs.terminal.log_files import logged
    from jobs.tune.tune import tune
    from jobs.tune.written import check_out, write_tuned
    from jobs.verbs.inputs import judgements_of, of_run

    folder = open_run(options.run)
    out = options.out or f"{folder.config.name}-tuned.yaml"
    check_out(out)
    judgements = judgements_of(ground_truth(options, "QRELS"), folder)
    if judgements is None:
        raise ConfigError("judgements", f"{folder.storage.root}: its config names no judgements that are here; give QRELS")
    judgements = of_run(judgements, folder)
    with logged("tune") as (progress, _):
        tuning = tune(folder, judgements, options.folds, options.seed, progress.phase)
    files = write_tuned(folder, tuning, judgements.path, out)
    values = lambda: tuning_values(tuning, out) | {"files": files}  # noqa: E731
    return show(options, values, lambda: tuning_page(tuning, out), out, of=folder)
