"""Analysis of what was run: a run's page, its quality, what two runs differ by, the config that its judgements suggest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from cluster.errors import ConfigError
from dmqr.face import caller
from dmqr.quality import Grades, JoinedQuality, MeasuredQuality, Truth, check_matched, joined
from dmqr.results import Folder, Result, prices_of_run

if TYPE_CHECKING:
    from jobs.log.judgements import Key

Quality = TypeVar("Quality", MeasuredQuality, JoinedQuality)


def report(
    run: Folder,
    /,
    *,
    out: str | None = None,
    no_texts: bool = False,
    qrels: Folder | None = None,
    key: Key | None = None,
    measures: Sequence[str] | None = None,
    baseline: str | None = None,
    answers: str | None = None,
    prices: str | None = None,
) -> str:
    """Writes a run's page, and returns its path.

    The page says what came out, what it cost, and what each strategy added.

    Args:
        out: where to (default: report.html in the run's folder)
        no_texts: leave out every query, rewrite, prompt, answer, document
        qrels: judgements (default: the config's)
        prices: default: prices.yaml beside the config

    Example:
        dmqr report runs/quickstart
    """
    from jobs.pages.ablation import compared, write_pages
    from jobs.pages.run import write_report
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.formats import unpriced

    face, folder = caller(), open_run(os.fspath(run))
    priced = prices_of_run(folder, prices)
    truth = Truth(folder, qrels, key, answers, note=face.note)
    settings, texts = truth.settings(measures, baseline), folder.config.report.texts and not no_texts
    if folder.is_ablation:
        arms = compared(folder, truth.judgements, settings, priced, truth.gold)
        truth.check_frames(arms.comparisons.frames, must_match=False)
        write_pages(arms, out, texts=texts)
    else:
        measured = truth.measured(measures, must_match=False)
        write_report(folder, priced, measured, out, texts=texts)
        for warning in measured.warnings:
            face.note(warning)
        if priced is None:
            face.note(f"cost: {unpriced(folder.record.get('config_file', 'the config'))} (--prices FILE)")
    return out or folder.storage.url(REPORT)


def evaluate(
    run: Folder,
    /,
    *qrels: Folder | Grades,
    judged: bool = False,
    key: Key | None = None,
    measures: Sequence[str] | None = None,
    baseline: str | None = None,
    answers: str | None = None,
    csv: str | None = None,
    per_query: str | None = None,
    trec: str | None = None,
    rows: str | None = None,
    arm: str | None = None,
) -> MeasuredQuality | JoinedQuality:
    """Measures results and answers against judgements.

    The original alone (fused, not reranked) is measured beside a run; arms of one or several ablations are compared.

    Args:
        run: a run's folder, or <output>/<name> for its newest finished run
        qrels: judgements: log_id (or what --key says), doc_id, grade (tabs), or TREC's four columns (default: those of the
            run's config, else of its judge); or further ablations, to join their arms
        judged: measure by the grades of the run's judge (the config's `judge`)
        key: what the judgements name (default: the run's evaluate.key)
        measures: with commas, as ir_measures names them, like nDCG@10,AP@10; the first one leads (default: evaluate.measures)
        baseline: the arm that an ablation's arms are compared with (default: evaluate.baseline)
        answers: gold answers, for EM and F1: log_id (or what --key says), answer (tabs) (default: those of the run's config)
        csv: write the measures, a row for each, of ablations for each arm and measure; .csv or .parquet
        per_query: write the measures of each judged log row or query; .parquet or .csv
        trec: write the run's results (not the original's; all that were kept) of what is judged as a TREC run file; a topic is
            the judged log_id, else the query_id; of an ablation: a folder of one file per arm
        rows: write each answered query with contexts, citations, gold answers and judgements: JSON lines
        arm: whose answers --rows has, of an ablation (default: the config itself)

    Example:
        dmqr evaluate runs/quickstart configs/sample/qrels.tsv
    """
    from jobs.measure.answers import judged_kinds
    from jobs.measure.exports import check_table, write_answers
    from jobs.runs.folder import is_run, open_run

    for option, path in (("csv", csv), ("per_query", per_query)):
        if path:
            check_table(path, option)
    face = caller()
    files = [given if isinstance(given, dict) else os.fspath(given) for given in qrels]  # type: ignore[arg-type]
    if len(files) > 1 or any(isinstance(file, str) and is_run(file) for file in files):
        of_one = {"key": key, "answers": answers, "per_query": per_query, "trec": trec, "rows": rows, "arm": arm}
        for name in (name for name, value in of_one.items() if value is not None):
            raise ConfigError("argument", f"{name}: applies to a single run or ablation; leave it out")
        return _saved(joined([os.fspath(run), *map(str, files)], face, measures, baseline, judged), csv)
    folder = open_run(os.fspath(run))
    truth = Truth(folder, next(iter(files), None), key, answers, judged, face.note)
    known = truth.judgements, truth.gold  # arguments are checked before anything is written
    if arm is not None and rows is None:
        raise ConfigError("argument", f"arm {arm}: selects the answers that `rows` writes; give rows, or leave arm out")
    written = [write_answers(rows, folder, arm, truth.gold)] if rows else []
    if not written and known == (None, None) and not judged_kinds(folder):
        raise ConfigError("argument", f"{folder.storage.root}: has no judgements of its own; name a file with qrels")
    settings = truth.settings(measures, baseline)
    measured = truth.compared(settings) if folder.is_ablation else truth.measured(measures)
    quality = MeasuredQuality(folder, measured, face.notes)
    if trec:
        quality.write_trec(trec)
    if per_query:
        quality.write_per_query(per_query)
    others = f"`dmqr report {os.fspath(run)} --qrels FILE` writes it to the page,\n  --per-query FILE each query's values"
    quality.files, quality.lines = written, [*map(str, written), f"not kept: {others}"]
    return _saved(quality, csv)


def _saved(quality: Quality, path: str | None) -> Quality:
    """Returns the quality, whose table is written to a file where one is named."""
    from jobs.measure.exports import write_tables

    if path:
        if not (table := quality.table).num_rows:
            raise ConfigError("argument", "csv: no query is judged, so there are no measures; give judgements with qrels")
        write_tables(path, table.schema, [table])
    return quality


def diff(
    a: Folder,
    b: Folder,
    qrels: Folder | None = None,
    /,
    *,
    key: Key | None = None,
    measures: Sequence[str] | None = None,
    answers: str | None = None,
    samples: int = 10,
    prices: str | None = None,
) -> Result:
    """Compares two runs: settings, documents, cost, quality.

    It lists the rewrites and documents that moved; quality needs judgements.

    Args:
        a: a run's folder, or <output>/<name> for its newest finished run
        b: the run to compare
        qrels: judgements, as of evaluate (default: those of B's config)
        answers: gold answers, as of evaluate (default: those of B's config)
        samples: queries in each list of queries (default: 10)
        prices: of both runs; default: prices.yaml beside B's config

    Example:
        dmqr diff runs/quickstart runs/quickstart configs/sample/qrels.tsv
    """
    from jobs.measure.diff.diff import diff, diff_values
    from jobs.pages.diff import diff_page
    from jobs.runs.folder import open_run

    if samples < 0:
        raise ConfigError("argument", f"samples {samples}: is less than 0; give 0 or more")
    face, old, new = caller(), open_run(os.fspath(a)), open_run(os.fspath(b))
    for folder in (folder for folder in (old, new) if folder.is_ablation):
        what = "is an ablation, whose arms are compared in its report"
        raise ConfigError("argument", f"{folder.storage.root}: {what}; give two runs")
    truth = Truth(new, qrels, key, answers, note=face.note)
    judgements, priced = truth.named, prices_of_run(new, prices)
    changes = diff(old, new, judgements, priced, samples, measures, truth.gold)
    if (quality := changes.quality) is not None and truth.given and judgements is not None:
        in_a_log = quality.frame.judged - min(quality.missing)  # of another log or key is what neither log has
        check_matched(judgements.path, quality.warning, in_a_log, quality.left_out)
    return Result(diff_values(changes), diff_page(changes), notes=face.notes)


def tune(
    run: Folder,
    qrels: Folder | None = None,
    /,
    *,
    key: Key | None = None,
    folds: int = 5,
    out: str | None = None,
    seed: int = 0,
) -> Result:
    """Learns weights; writes the tuned config.

    Weights are learned from a run's lists, and measured on held-out queries.

    Args:
        qrels: judgements, as of evaluate (default: those of the run's config)
        folds: parts, each left out once to measure by (default: 5)
        out: where the tuned config goes (default: <name>-tuned.yaml); overwrites nothing
        seed: of the drawing of the folds (default: 0)

    Example:
        dmqr tune runs/quickstart configs/sample/qrels.tsv
    """
    from jobs.pages.tune import tuning_page, tuning_values
    from jobs.runs.folder import open_run
    from jobs.tune.config_file import check_out, write_tuned
    from jobs.tune.tune import tune

    face, folder = caller(), open_run(os.fspath(run))
    written = out or f"{folder.config.name}-tuned.yaml"
    check_out(written)
    truth = Truth(folder, qrels, key, note=face.note)
    judgements = truth.named
    if judgements is None:
        what = "its config names no judgements, or their file is missing"
        raise ConfigError("judgements", f"{folder.storage.root}: {what}; give QRELS")
    with face.working("tune") as display:
        tuning = tune(folder, judgements, folds, seed, display.phase)
    write_tuned(folder, tuning, judgements.path, written)

    values = {"run": folder.storage.root, "state": folder.state} | tuning_values(tuning, written) | {"files": [written]}
    title = f"{folder.storage.root} ({folder.state})"
    return Result(values, tuning_page(tuning, written), written, title=title, notes=face.notes)
