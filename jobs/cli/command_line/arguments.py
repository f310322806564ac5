"""The command line: the verbs, their arguments, an example of each, and completion for shells. No verb is imported here."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import shtab

from jobs.cli.command_line.cluster_arguments import HEAD, add, add_job, add_submission
from jobs.cli.command_line.config_arguments import add_config, add_label, add_overrides
from jobs.cli.command_line.measure_arguments import (
    add_diff,
    add_evaluate,
    add_export,
    add_json,
    add_measures,
    add_report,
    add_tune,
)
from jobs.cli.command_line.parser import PROGRAM, REQUIRED, Parser
from jobs.cli.command_line.store_arguments import add_store
from jobs.cli.inputs import named_config


class Verb(NamedTuple):
    """One verb: what it does, in one line; a command that works as it stands in a clone; what adds its arguments."""

    words: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]


def parser() -> Parser:
    """Returns the parser of the whole command line."""
    whole = Parser(
        prog=PROGRAM,
        description="Rewrite a query log in several ways, retrieve with every rewrite, fuse, rerank; see README.md.",
        epilog="One night:\n" + "\n".join(f"  {VERBS[name].example}" for name in ("index", "plan", "run", "report")),
    )
    whole.verbs = list(VERBS)
    whole.add_argument("--version", action="version", version=f"dmqr {importlib.metadata.version('dmqr')}")
    shtab.add_argument_to(whole, "--print-completion", help="print the completion script of a shell (README tells where to)")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.words, description=verb.words, epilog=f"example:\n  {verb.example}")
        verb.arguments(one)
        one.set_defaults(known=sorted(flag for action in one._actions for flag in action.option_strings))
    return whole


def program() -> str:
    """Returns how this program was called, for commands that a person shall type."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{_typed(Path(sys.executable))} -m jobs"
    return _typed(called)


def _typed(program: Path) -> str:
    """Returns the name of a program that the shell finds by its name, else its path."""
    found = shutil.which(program.name)
    return program.name if found and Path(found).absolute() == program.absolute() else str(program)


def _index(one: argparse.ArgumentParser) -> None:
    add_config(one, nargs="?")
    words = (
        "Parquet, JSON lines or CSV (doc_id, title, text, or the columns that the config names: corpus.id_column), documents "
        "(text, Markdown, HTML, PDF), or a folder of either; with retrieve.collections NAME=PATH, for each or for some"
    )
    words += " (default: corpus.path of the config)"
    add(one, "--corpus", default=[], nargs="+", action="extend", metavar="PATH", help=words)
    add(one, "--replace", action="store_true", help="replace an index of another corpus, which is refused otherwise")
    add(one, "--dry-run", action="store_true", help="build nothing, and say of each index what would become of it")
    add_json(one)

    def arrange(options: argparse.Namespace) -> None:
        """Takes the config from among the paths of the corpus, where it stands behind them."""
        if options.config is None and (found := [word for word in options.corpus if _named_yaml(word)]):
            options.config = found[-1]
            options.corpus.remove(found[-1])
        if options.config is None:
            one.error(f"{REQUIRED}CONFIG")

    one.set_defaults(arrange=arrange)


def _try(one: argparse.ArgumentParser) -> None:
    add_config(one, nargs="+")
    words = "the query, in quotes; without one: asked for at a terminal, else read from standard input, one a line"
    add(one, "query", metavar="QUERY", nargs="?", help=words)
    add(one, "--context", metavar="TEXT", help="the earlier turns of the conversation, as log.context_column has them")
    words = "what the log's column NAME, a variable of a prompt, says of the query; once for each column"
    add(one, "--value", action="append", default=[], metavar="NAME=TEXT", help=words)
    add(one, "--prompts", action="store_true", help="show the prompt and the raw answer of each request, too")
    add_json(one)

    def arrange(options: argparse.Namespace) -> None:
        """Tells the query from the configs: what is neither a file nor named like YAML."""
        given = [*options.config, *([] if options.query is None else [options.query])]
        options.config = [word for word in given if _named_yaml(word) or (os.path.exists(word) and not os.path.isdir(word))]
        queries = [word for word in given if word not in options.config]
        if len(queries) > 1:
            one.error(f"{', '.join(map(repr, queries))}: one QUERY is sent, in quotes; a CONFIG is a YAML file")
        if not options.config:
            one.error(f"{REQUIRED}CONFIG")
        options.query = queries[0] if queries else None

    one.set_defaults(arrange=arrange)


def _named_yaml(word: str) -> bool:
    """Returns whether an argument is named like a config, whether it is there or not."""
    return named_config(word) and not any(map(str.isspace, word))


def _work(one: argparse.ArgumentParser) -> None:
    add_config(one)
    add_label(one, "stands in the name of the run's folder (default: the log's date); another label is another run")
    add_json(one)


def _run(one: argparse.ArgumentParser) -> None:
    _measured_work(one)
    words = "ask the queries again whose errors have this reason (all: any), as a run labelled retry-1, retry-2, ..."
    add(one, "--retry", metavar="REASON", help=f"{words}; everything else comes from the store")


def _measured_work(one: argparse.ArgumentParser) -> None:
    _work(one)
    add_measures(one)


def _plan(one: argparse.ArgumentParser) -> None:
    _work(one)
    words = "pay for so many queries of which something is missing, keep it in the store, and say by it what the others cost"
    add(one, "--sample", metavar="N", type=int, default=0, help=f"{words} (default: 0, nothing is paid)")


def _submit(one: argparse.ArgumentParser) -> None:
    add_config(one)
    add_label(one, "as of run: stands in the name of the run's folder and in the job's id")
    add_submission(one)
    add_json(one)


def _job(one: argparse.ArgumentParser) -> None:
    add_job(one)
    add_overrides(one)
    add_label(one, "with a config: that it was submitted with")


def _logs(one: argparse.ArgumentParser) -> None:
    _job(one)
    add(one, "--no-follow", action="store_true", help="print what is there, and end")


def _stop(one: argparse.ArgumentParser) -> None:
    _job(one)
    add_json(one)


def _runs(one: argparse.ArgumentParser) -> None:
    words = "a config, for the runs of its name; an output, or <output>/<name>; or a run's folder, for how far it is"
    add(one, "config", metavar="CONFIG|OUTPUT|RUN", help=words)
    add_overrides(one)
    add(one, "--prices", metavar="FILE", help="default: prices.yaml beside the config")
    add(one, "--last", metavar="N", type=int, help="only the newest N runs (default: all)")
    add_json(one)


def _store(one: argparse.ArgumentParser) -> None:
    add_store(one)
    add_overrides(one)
    add_json(one)


QUICKSTART = "configs/quickstart.yaml"
VERBS = {
    "index": Verb("build the index that the config's retrievers name", f"dmqr index {QUICKSTART}", _index),
    "try": Verb(
        "send one query through every stage and show what becomes of it, or one after the other; several configs side by side",
        f'dmqr try {QUICKSTART} "why do onions make you cry"',
        _try,
    ),
    "plan": Verb("say what a run would do and cost, and refuse what it would refuse", f"dmqr plan {QUICKSTART}", _plan),
    "run": Verb(
        "do what is missing of the job; a killed run goes on, a finished one is shown again", f"dmqr run {QUICKSTART}", _run
    ),
    "ablate": Verb(
        "compare variants of a config (arms): gather once what they share, answer each, test the differences",
        "dmqr ablate configs/ablate.yaml",
        _measured_work,
    ),
    "submit": Verb(
        "submit run or ablate to a Ray cluster and follow it; submitted twice, a job is followed, or goes on",
        f"dmqr submit {QUICKSTART} --address {HEAD}",
        _submit,
    ),
    "logs": Verb("print what a submitted job prints, to its end", f"dmqr logs {QUICKSTART} --address {HEAD}", _logs),
    "stop": Verb("stop a submitted job; shards under way are committed", f"dmqr stop {QUICKSTART} --address {HEAD}", _stop),
    "runs": Verb(
        "list runs by the date of the log: state, queries, failures, quality and cost; show how far one is",
        f"dmqr runs {QUICKSTART}",
        _runs,
    ),
    "store": Verb(
        "compact the store of a config and remove what is old or unused (gc); forget a query",
        f"dmqr store gc {QUICKSTART} --unused 30d",
        _store,
    ),
    "report": Verb(
        "write a run's page: what came out, what it cost, what each strategy added", "dmqr report runs/quickstart", add_report
    ),
    "evaluate": Verb(
        "measure a run's results, and the original alone (fused, not reranked), against relevance judgements",
        "dmqr evaluate runs/quickstart configs/sample/qrels.tsv",
        add_evaluate,
    ),
    "diff": Verb(
        "compare two runs: config, prompts, models; rewrites and documents that moved; cost; with judgements the quality",
        "dmqr diff runs/quickstart runs/quickstart configs/sample/qrels.tsv",
        add_diff,
    ),
    "tune": Verb(
        "learn weights and a selection from a run, measure them on held-out queries, and write the config that is best",
        "dmqr tune runs/quickstart configs/sample/qrels.tsv",
        add_tune,
    ),
    "export": Verb(
        "write a finished run's look-up rows as a version; make it current, if errors, coverage and quality are within bounds",
        "dmqr export runs/quickstart --to runs/published --promote --set publish.error_rate=0.05",
        add_export,
    ),
}
