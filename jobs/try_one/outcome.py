"""Arguments of `try`, and the outcome of sending one through every stage (`jobs/try_one/trial.py`)."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from cluster import costs
from cluster.errors import ConfigError
from cluster.http import encodable
from jobs.config.config import Config
from jobs.job.steps import WEB_SEARCH
from jobs.tables import ANSWER, CORRECTION, ERROR, GRADE, JUDGEMENT, REWRITE, ROUND, SELECTION, STORED, WEB_PAGE

PROMPT = "query> "


def check_utf8(what: str, text: str) -> None:
    """Checks that an argument was UTF-8.

    Raises:
        ConfigError: it was not.
    """
    if text != encodable(text):
        raise ConfigError("argument", f"{what}: is not UTF-8; give it in a terminal that is")


def read_values(given: Iterable[str]) -> dict[str, str]:
    """Returns name -> text of arguments NAME=TEXT.

    Raises:
        ConfigError: one has no name, or a name comes twice.
    """
    values: dict[str, str] = {}
    for pair in given:
        name, sign, text = pair.partition("=")
        if not name or not sign:
            raise ConfigError("argument", f"--value {pair}: is not NAME=TEXT; write it as --value country=Iceland")
        if name in values:
            raise ConfigError("argument", f"--value {name}: is given twice, and a query has one value; give one")
        values[name] = text
    return values


def typed_queries() -> Iterator[str]:
    """Returns the queries until the end of standard input (Ctrl-D at a terminal); empty lines are left out.

    Raises:
        ConfigError: standard input is no terminal and has none.
    """
    if sys.stdin.isatty():
        return _typed()
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 is refused, the others are tried
    lines = (line.rstrip("\r\n") for line in sys.stdin if line.strip())
    first = next(lines, None)  # before any model is loaded
    if first is None:
        raise ConfigError("argument", "QUERY is missing; give it in quotes, as lines on standard input, or at a terminal")
    return itertools.chain([first], lines)


def _typed() -> Iterator[str]:
    import readline  # noqa: F401 - lines can be edited and called back

    print("Type a query; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            if sys.stdout.isatty():
                line = input(f"\n{PROMPT}")
            else:
                print(f"\n{PROMPT}", end="", file=sys.stderr, flush=True)
                line = input()
        except EOFError:
            print(file=sys.stderr)
            return
        if line.strip():
            yield line


Row = dict[str, Any]
_SHOWN = {
    "rewrites": REWRITE, "errors": ERROR, "costs": costs.COST, "rounds": ROUND, "grades": GRADE, "judgements": JUDGEMENT,
    "selections": SELECTION, "corrections": CORRECTION, "answers": ANSWER,
    "results": pa.struct([field for field in STORED["results"] if field.name not in ("query_id", "arm", "rank")]),
}  # fmt: skip


def tried_row(query: Row, tables: Mapping[str, list[Row]]) -> Row:
    """Returns the stored rows of a run's only query: the fields of the query, and the rows of each table.

    `hits` are those of results/. `selection`, `correction` (with the `pages` of the web that it keeps) and `answer` are null
    where there is none.
    """
    shown = {name: [{field.name: one[field.name] for field in of} for one in tables[name]] for name, of in _SHOWN.items()}
    row: Row = query | shown | {name: tables[name] for name in ("candidates", "runs")} | {"hits": shown.pop("results")}
    for name in ("selection", "correction", "answer"):
        row[name] = next(iter(row.pop(f"{name}s")), None)
    by_rank = sorted(tables["web"], key=itemgetter("rank"))
    row["web"] = [page for page in reversed(by_rank) if page["retriever"] != WEB_SEARCH]  # the best rank counts, the last
    if row["correction"] is not None:
        graded = {one["doc_id"] for one in row["grades"]}
        pages = [page for page in by_rank if page["retriever"] == WEB_SEARCH and page["doc_id"] not in graded]
        kept = pages[: row["correction"]["hits"] or 0]
        row["correction"]["pages"] = [{field.name: page[field.name] for field in WEB_PAGE} for page in kept]
    return row


@dataclass(frozen=True)
class Trial:
    """The result of one config for the query."""

    label: str
    config: Config
    row: Row
    """The row before the last stage, as Python values: rewrites, candidates, hits, errors; and the retrieved `lists`, and
    `context` and `values`, which prompts were given. A hit has its `rank`, indexed `text`, `url` of a page of the web, and
    `place`: source and page, as an answer cites it."""
    spent: costs.Totals
    """Costs without start-up."""
    usd: float | None
    requests: list[Row]
    """Of each request: prompt, raw answer, what it took; an error in place of the answer."""
    unpriced: str
    """Reason why there is no `usd`."""

    @property
    def fused_ranks(self) -> dict[str, int]:
        """Returns doc_id -> rank after fusion, of the candidates."""
        return {candidate["doc_id"]: rank for rank, candidate in enumerate(self.row["candidates"], start=1)}

    @property
    def document_counts(self) -> dict[str, int]:
        """Returns the number of documents that were found, that fusion kept, and that are results."""
        found = {hit["doc_id"] for hits in self.row["lists"] for hit in hits["hits"]}
        return {"found": len(found), "candidates": len(self.row["candidates"]), "results": len(self.row["hits"])}

    @property
    def not_selected(self) -> list[str]:
        """Returns the planned strategies that were not selected for the query."""
        selected = self.row["selection"]
        return [] if selected is None else [name for name in self.config.rewrite.planned if name not in selected["strategies"]]


def trial_values(trial: Trial) -> dict[str, Any]:
    """Returns the trial as JSON-able values."""
    row = trial.row
    return {
        "config": trial.label,
        **{name: row[name] for name in ("query", "query_id", "context", "values")},
        "requests": trial.requests,
        "selection": None if row["selection"] is None else row["selection"] | {"not_selected": trial.not_selected},
        "rewrites": row["rewrites"],
        "errors": row["errors"],
        "lists": [run | {"hits": run["hits"][: trial.config.fuse.depth]} for run in row["lists"]],
        **{name: row[name] for name in ("rounds", "grades", "correction", "answer")},
        "judgements": row["judgements"],
        "results": row["hits"],
        "documents": trial.document_counts,
        "costs": trial.spent,
        "usd": trial.usd,
        "unpriced": trial.unpriced,
    }
