"""The command line: `dmqr plan | run | index`, also as `python -m jobs`.

Standard output has only what was asked for: the table and, as the last line of `run`, the run's folder. Exit codes: 0 done,
1 failed or stopped (the same command goes on), 2 refused (config, input or cluster), 130 / 143 interrupted.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cluster import ClusterError
from jobs.log import LogError
from jobs.part import ConfigError, nearest
from retrievers.retriever import RetrieverError
from rewriters.errors import RewriterError

if TYPE_CHECKING:
    from jobs.prepare import Prepared

PACKAGES = ("jobs.", "rewriters.", "retrievers.", "cluster.")  # whose errors are one line for the person already
REFUSALS = (ConfigError, LogError, RewriterError, RetrieverError, ClusterError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.verb_function(options))
    except REFUSALS as error:
        return _say(options.verb, error, 2)
    except KeyboardInterrupt:
        return _say(options.verb, "interrupted", 130)
    except SystemExit as stop:  # Ray answers SIGTERM with it while it starts
        return _say(options.verb, "interrupted", 143) if stop.code == signal.SIGTERM else 1
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _say(options.verb, f"{error.strerror or error}{where}", 1)
    except Exception as error:  # a bug: one line for the person, the trace where it can be found
        with tempfile.NamedTemporaryFile("w", prefix="dmqr-", suffix=".log", delete=False) as log:
            traceback.print_exc(file=log)
        return _say(options.verb, f"{_cause(error)}; details in {log.name}", 1)


def _say(verb: str, words: object, code: int) -> int:
    print(f"dmqr {verb}: {words}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, whose errors are one line with the nearest name."""

    def error(self, message: str) -> NoReturn:
        if "invalid choice" in message and self.prog == "dmqr":
            given = message.split("'")[1]
            message = f"unknown verb {given!r}{nearest(given, VERBS)}"
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dmqr", description="Rewrite a query log, retrieve, fuse, rerank; see README.md.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    for name, (function, words) in VERBS.items():
        verb = verbs.add_parser(name, help=words, description=words)
        verb.add_argument("config", metavar="CONFIG", help="a YAML file, e.g. configs/quickstart.yaml")
        verb.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override one key of the config")
        verb.add_argument("--date", metavar="YYYY-MM-DD", help="what {date} stands for (default: today)")
        if name == "index":
            verb.add_argument(
                "--corpus", required=True, nargs="+", metavar="PATH", help="Parquet file or folder: doc_id, title, text"
            )
        verb.set_defaults(verb_function=function)
    return parser


def _plan(options: argparse.Namespace) -> int:
    from jobs.load import load_config
    from jobs.plan import plan
    from jobs.prepare import prepare
    from jobs.progress import apart

    prepared = prepare(load_config(options.config, options.set, options.date), options.config)
    width = _width()
    with apart(f"{prepared.config.name}-plan") as (progress, _):
        text = plan(prepared, progress, width)
    print(text)
    return 0


def _run(options: argparse.Namespace) -> int:
    from jobs.load import load_config
    from jobs.prepare import prepare
    from jobs.progress import apart
    from jobs.run import Stopped, run
    from jobs.summary import closing_text

    prepared = prepare(load_config(options.config, options.set, options.date), options.config)
    text, failure, code, width = "", None, 1, _width()
    with apart(prepared.run_id) as (progress, log):
        progress.tell(f"run {prepared.storage.root}")
        progress.tell(f"log {log}")
        try:
            plan, tally = run(prepared, progress)
            text = closing_text(prepared, plan, tally.counts, tally.spent, width)
        except Stopped as error:
            failure, code = str(error), error.code
        except REFUSALS:
            raise
        except Exception as error:  # a bug, or a failing worker: the trace is for the log, the line for the person
            traceback.print_exc()
            failure = f"{_cause(error)}; what is committed stays and the same command goes on; details in {log}"
        finally:
            _keep_log(prepared, log)
    if failure is not None:
        return _say("run", failure, code)
    print(text)
    print(prepared.storage.root)
    return 0


def _index(options: argparse.Namespace) -> int:
    from jobs.index import index
    from jobs.load import load_config
    from jobs.progress import apart

    config = load_config(options.config, options.set, options.date)
    with apart(f"{config.name}-index") as (progress, _):
        lines = index(config, options.corpus, progress)
    print("\n".join(lines))
    return 0


def _keep_log(prepared: Prepared, log: Path) -> None:
    """Put the log file beside the tables, if the run got as far as having any."""
    if prepared.storage.get("run.json") is not None:
        prepared.storage.upload(log, f"logs/{log.name}")


def _cause(error: BaseException) -> str:
    """The innermost cause, in one line; Ray wraps what a worker raised in text of many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit)(:|$)", line)]
    ours = [line.split(": ", 1)[-1] if line.startswith(PACKAGES) else line for line in causes if not line.startswith("ray.")]
    return (ours or lines or [type(error).__name__])[0].rstrip(".")


def _width() -> int:
    """Columns for a table; to be asked while standard output is still where it was."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 100


VERBS = {
    "plan": (_plan, "say what a run would do, and refuse what it would refuse"),
    "run": (_run, "do what is missing of the job; a killed run goes on, a finished one is shown again"),
    "index": (_index, "build the index that the config's retrievers name"),
}

if __name__ == "__main__":
    sys.exit(main())
