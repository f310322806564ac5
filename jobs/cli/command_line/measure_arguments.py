"""Arguments of the verbs that measure what was run: evaluate, diff, tune, export, report."""

from __future__ import annotations

import argparse
import re

from jobs.cli.command_line.cluster_arguments import add

_QRELS = "judgements: log_id (or what --key says), doc_id, grade (tabs), or TREC's four columns"


def add_run(one: argparse.ArgumentParser) -> None:
    """Adds the folder of a run."""
    add(one, "run", metavar="RUN", help="a run's folder, or <output>/<name> for its newest finished run")


def add_json(one: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    add(one, "--json", action="store_true", help="print one JSON object in place of the table")


def add_key(one: argparse.ArgumentParser) -> None:
    """Adds `--key`."""
    words = "what the judgements name (default: the run's evaluate.key)"
    add(one, "--key", choices=("log_id", "query_id", "query"), help=words)


def add_measures(one: argparse.ArgumentParser) -> None:
    """Adds `--measures`."""
    words = "with commas, as ir_measures names them, like nDCG@10,AP@10; the first one leads (default: evaluate.measures)"
    add(one, "--measures", metavar="NAME,...", type=_names, help=words)


def _compared(one: argparse.ArgumentParser) -> None:
    words = "the arm that an ablation's arms are compared with, or FAMILY=ARM, like 'bm25*=original_bm25'; once for each"
    add(one, "--baseline", action="append", metavar="ARM", help=f"{words} (default: evaluate.baseline and .baselines)")
    add(one, "--pairs", action="store_true", help="compare every two arms of an ablation, too")


def _gold(one: argparse.ArgumentParser, of: str = "the run's") -> None:
    words = "gold answers, for EM and F1: log_id (or what --key says), answer (tabs)"
    add(one, "--answers", metavar="FILE", help=f"{words} (default: those of {of} config)")


def _names(words: str) -> list[str]:
    """Returns names that commas part; those within brackets part nothing: nDCG(gains={0:0,1:3})@10."""
    return [name.strip() for name in re.split(r",(?![^({]*[)}])", words)]


def add_evaluate(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of evaluate."""
    add_run(one)
    words = f"{_QRELS} (default: those of the run's config, else of its judge); or further ablations, to join their arms"
    add(one, "qrels", nargs="*", metavar="QRELS|ABLATION", help=words)
    add(one, "--judged", action="store_true", help="measure by the grades of the run's judge (the config's `judge`)")
    add_key(one)
    add_measures(one)
    _compared(one)
    _gold(one)
    add(one, "--per-query", metavar="FILE", help="write the measures of each judged log row or query; .parquet or .csv")
    words = "write the run's results (not the original's; all that were kept) of what is judged as a TREC run file;"
    words += " a topic is the judged log_id, else the query_id"
    add(one, "--trec", metavar="FILE", help=words + "; of an ablation: a folder of one file per arm")
    words = "write each answered query with contexts, citations, gold answers and judgements: JSON lines"
    add(one, "--rows", metavar="FILE", help=words)
    add(one, "--arm", metavar="ARM", help="whose answers --rows has, of an ablation (default: the config itself)")
    add_json(one)


def add_diff(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of diff."""
    for dest, words in (
        ("a", "A: a run's folder, or <output>/<name> for its newest finished run"),
        ("b", "B: the run to compare"),
    ):
        add(one, dest, metavar="RUN", help=words)
    add(one, "qrels", nargs="?", metavar="QRELS", help=f"{_QRELS} (default: those of B's config)")
    add_key(one)
    add_measures(one)
    _gold(one, "B's")
    add(one, "--samples", type=int, default=10, metavar="N", help="queries in each list of queries (default: 10)")
    add(one, "--prices", metavar="FILE", help="of both runs; default: prices.yaml beside B's config")
    add_json(one)


def add_tune(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of tune."""
    add_run(one)
    add(one, "qrels", nargs="?", metavar="QRELS", help=f"{_QRELS} (default: those of the run's config)")
    add_key(one)
    add(one, "--folds", type=int, default=5, metavar="N", help="parts, each left out once to measure by (default: 5)")
    words = "where the tuned config goes (default: <name>-tuned.yaml); its rules, if it selects, beside it; overwrites nothing"
    add(one, "--out", metavar="FILE", help=words)
    add(one, "--seed", type=int, default=0, metavar="N", help="of the drawing of the folds (default: 0)")
    add_json(one)


def add_export(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of export."""
    add_run(one)
    add(one, "--to", required=True, metavar="FOLDER", help="where versions lie, here or on S3")
    add(one, "--hits", type=int, default=10, metavar="N", help="documents of a query at most (default: 10)")
    add(one, "--promote", action="store_true", help="make the version current, if its checks hold")
    words = "with --promote: another bound, like publish.coverage=0.9; null: none"
    add(one, "--set", action="append", default=[], metavar="A.B=VALUE", help=words)
    words = "with --promote: judgements to check quality by (default: those of the run's config, else of its judge)"
    add(one, "--qrels", metavar="FILE", help=words)
    add_key(one)
    add_json(one)


def add_report(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of report."""
    add_run(one)
    add(one, "--out", metavar="FILE", help="where to (default: report.html in the run's folder)")
    add(one, "--no-texts", action="store_true", help="leave out every query, rewrite, prompt, answer, document")
    add(one, "--samples", type=int, metavar="N", help="queries shown at length (default: the config's, 100)")
    add(one, "--all-requests", action="store_true", help="show each request of these, not one of each kind")
    add(one, "--qrels", metavar="FILE", help="judgements (default: the config's)")
    add_key(one)
    add_measures(one)
    _compared(one)
    _gold(one)
    add(one, "--prices", metavar="FILE", help="default: prices.yaml beside the config")
