"""What each verb does with its arguments; what it imports, it imports when it is asked for."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import ClusterError
from cluster.shards import SUCCESS
from jobs.command_line import program
from jobs.part import ConfigError
from jobs.refusal import REFUSALS, cause, say, system

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.config import Config
    from jobs.evaluate import Evaluation
    from jobs.prepare import Prepared
    from jobs.run_folder import RunFolder


def index(options: argparse.Namespace) -> int:
    from jobs.index import index
    from jobs.progress import apart

    config = _load(options)
    with apart(f"{config.name}-index") as (progress, _):
        built = index(config, options.corpus, progress)
    if options.json:
        _print_json(built)
    else:
        print("\n".join(f"{one['index']}: {one['documents']:,} documents, {one['done']}" for one in built))
    return 0


def try_(options: argparse.Namespace) -> int:
    from jobs.load import load_config
    from jobs.progress import apart
    from jobs.trial import as_values, try_query
    from jobs.trial_page import page

    if Path(options.query).is_file():
        raise ConfigError(f"QUERY {options.query!r} is a file; give the query last, in quotes")
    configs = [load_config(path, options.set, options.date) for path in options.config]
    labels = [Path(path).stem for path in options.config]
    labels = labels if len(set(labels)) == len(labels) else list(options.config)
    with apart("try") as (progress, _):
        trials = [
            try_query(config, path, options.query, label, progress.phase)
            for config, path, label in zip(configs, options.config, labels, strict=True)
        ]
    if options.json:
        _print_json([as_values(trial) for trial in trials])
    else:
        _print(page(trials))
    return 0


def plan(options: argparse.Namespace) -> int:
    from jobs.plan import plan, plan_table
    from jobs.prepare import prepare
    from jobs.progress import apart

    prepared = prepare(_load(options), options.config)
    with apart(f"{prepared.config.name}-plan") as (progress, _):
        planned = plan(prepared, progress)
    if options.json:
        _print_json(planned)
    else:
        _print(plan_table(planned))
    return 0


def run(options: argparse.Namespace) -> int:
    from jobs.evaluate import evaluate
    from jobs.prepare import prepare
    from jobs.progress import apart
    from jobs.run import Stopped, run
    from jobs.run_folder import REPORT, open_run
    from jobs.summary import closing_table, closing_values

    prepared = prepare(_load(options), options.config)
    failure, code, again = None, 1, _again(options)
    before = prepared.storage.stat(SUCCESS) is not None
    with apart(prepared.run_id) as (progress, log):
        progress.tell(f"run {prepared.storage.root}")
        progress.tell(f"log {log}")
        try:
            run(prepared, progress, again)
            progress.phase("evaluating and writing the report")
            folder = open_run(prepared.storage.root)
            evaluation = None if prepared.judgements is None else evaluate(folder, prepared.judgements)
            if not before or folder.storage.get(REPORT) is None:  # one that is there may be of a moment before the end
                try:
                    _write_report(folder, prepared.prices, evaluation)
                except Exception as error:  # the night's work is done all the same
                    traceback.print_exc()
                    page = f"the report was not written: {cause(error)}; details in {log}"
                    progress.tell(f"{page}; try again with: {program()} report {shlex.quote(folder.storage.root)}")
        except Stopped as error:
            failure, code = str(error), error.code
        except REFUSALS:
            raise
        except OSError as error:
            traceback.print_exc()
            failure = f"{system(error)}; what is committed stays; then go on with: {again}"
        except Exception as error:  # a bug, or a failing worker: the trace is for the log, the line for the person
            traceback.print_exc()
            failure = f"{cause(error)}; what is committed stays; details in {log}; go on with: {again}"
        finally:
            _keep_log(prepared, log)
    if failure is not None:
        return say("run", failure, code)
    if options.json:
        _print_json(closing_values(folder, prepared.prices, evaluation))
    else:
        _print(closing_table(folder, prepared.prices, evaluation))
        print(folder.storage.root)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    from jobs.evaluate import evaluate, evaluation_table, evaluation_values, read_qrels
    from jobs.run_folder import open_run

    folder = open_run(options.run)
    judgements = read_qrels(options.qrels, "QRELS")
    evaluation = evaluate(folder, judgements)
    if options.json:
        _print_json({"run": folder.storage.root, "state": folder.state} | evaluation_values(evaluation))
    else:
        print(f"{folder.storage.root} ({folder.state})")
        _print(evaluation_table(evaluation))
    return 0


def report(options: argparse.Namespace) -> int:
    from cluster.costs import load_prices
    from cluster.storage import remote
    from jobs.run_folder import open_run

    folder = open_run(options.run)
    prices = Path(options.prices) if options.prices else Path(folder.record.get("config_file", "")).with_name("prices.yaml")
    if options.prices and not prices.exists():
        raise ConfigError(f"--prices {prices}: no such file; give one like configs/prices.yaml")
    if options.samples is not None and options.samples < 0:
        raise ConfigError(f"--samples {options.samples}: is less than 0; give 0 or more")
    qrels = options.qrels or folder.config.evaluate.qrels
    if options.qrels is None and qrels is not None and not (remote(qrels) or Path(qrels).exists()):
        print(f"dmqr report: judgements {qrels} are not here; the page does without (--qrels FILE)", file=sys.stderr)
        qrels = None
    evaluation = _evaluation(folder, qrels, "--qrels" if options.qrels else "evaluate.qrels")
    texts = False if options.no_texts else None
    print(_write_report(folder, load_prices(prices), evaluation, options.out, texts, options.samples))
    return 0


def _write_report(
    folder: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    out: str | None = None,
    texts: bool | None = None,
    samples: int | None = None,
) -> str:
    """Write the page and say where; what is None is as the run's config has it."""
    from cluster.storage import open_storage, remote
    from jobs.report import report
    from jobs.run_folder import REPORT

    wanted = folder.config.report
    html = report(
        folder,
        prices,
        evaluation,
        texts=wanted.texts if texts is None else texts,
        samples=wanted.samples if samples is None else samples,
    )
    if out is not None and remote(out):
        bucket, _, key = out.removeprefix("s3://").partition("/")
        open_storage(f"s3://{bucket}").put(key + REPORT if out.endswith("/") else key, html.encode())
        return out
    if out is not None:
        _put(Path(out), html)
        return out
    folder.storage.put(REPORT, html.encode())
    return folder.storage.url(REPORT)


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no file, such as /dev/stdout, is written to as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _evaluation(folder: RunFolder, qrels: str | None, where: str) -> Evaluation | None:
    from jobs.evaluate import evaluate, read_qrels

    return evaluate(folder, read_qrels(qrels, where)) if qrels else None


def _load(options: argparse.Namespace) -> Config:
    from jobs.load import load_config

    return load_config(options.config, options.set, options.date)


def _again(options: argparse.Namespace) -> str:
    """The command that goes on with this run; tomorrow, too, if `{date}` is in the config."""
    words = [*shlex.split(program()), "run", options.config, *(word for setting in options.set for word in ("--set", setting))]
    dated = "{date}" in Path(options.config).read_text(encoding="utf-8") + "".join(options.set)
    if options.date or dated:
        from jobs.load import today

        words += ["--date", options.date or today()]
    return shlex.join(words)


def _keep_log(prepared: Prepared, log: Path) -> None:
    """Put the log file beside the tables, if the run got as far as having any."""
    with contextlib.suppress(OSError, ClusterError):  # what went wrong is said, and the log stays where it was written
        if prepared.storage.get("run.json") is not None:
            prepared.storage.upload(log, f"logs/{log.name}")


def _print(shown: Any) -> None:
    """A table or page on standard output: as wide as the terminal, in colour only there."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((80, 24)).columns if terminal else 100
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(captured.get().splitlines() if terminal else [line.rstrip() for line in captured.get().splitlines()]))


def _print_json(values: Any) -> None:
    print(json.dumps(values, ensure_ascii=False, indent=1, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence | set):
        return list(value)
    return str(value)
