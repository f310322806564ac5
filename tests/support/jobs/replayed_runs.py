"""Nights whose LLM is told what to say of each query, so that some of its answers are at fault, and their replays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.__main__ import main
from jobs.runs.folder import RunFolder, open_run
from rewriters.outcome.replays import FIRST_REPLAY
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast of beer", "faint galaxies"]
REFUSED = "I'm sorry, but I can't help with that request."


class Sent(NamedTuple):
    """A request as the server saw it."""

    query: str
    replay: int
    seed: int
    temperature: float


class Llm:
    """A server's answers: `faulty` says what it answers to a query, by the number of replays before; else all is well."""

    def __init__(self) -> None:
        self.faulty: dict[str, list[str]] = {}  # query -> its answers so far; behind the last all is well
        self.away: set[str] = set()  # queries to which it answers with an error
        self.server = FakeServer(text=self.text, answer=self.answer)

    def text(self, body: Body) -> str:
        """What it says: the strategies that a joint request asks for, in its object; else a text."""
        query, number = query_of(body), int(body.get("seed", 0)) // FIRST_REPLAY
        answers = self.faulty.get(query, [])
        if number < len(answers):
            return answers[number]
        return good(query, number)

    def answer(self, body: Body) -> Reply | None:
        return refusal(400, "no") if query_of(body) in self.away else None

    def sent(self, since: int = 0) -> list[Sent]:
        """The requests that it saw after so many, in order of their queries."""
        return sorted(
            Sent(query_of(body), int(body.get("seed", 0)) // FIRST_REPLAY, body.get("seed", 0), body.get("temperature", 0.0))
            for body in self.server.bodies[since:]
        )


def good(query: str, number: int = 0) -> str:
    """The answer of a number that serves."""
    return json.dumps({"general": f"all about {query} {number}", "keyword": f"{query} {number} words"})


def query_of(body: Body) -> str:
    return str(body["messages"][0]["content"]).rpartition("Query: ")[2]


class Nights:
    """Runs and replays of one config in this process, by the command line."""

    def __init__(self, path: str, llm: Llm) -> None:
        self.path, self.llm = path, llm
        self._seen = 0

    def run(self, label: str, *settings: str, code: int = 0) -> list[Sent]:
        """Runs a night; returns what it sent."""
        return self.command("run", self.path, "--label", label, *_set(settings), code=code)

    def replay(self, folder: Path | str, *reasons: str, settings: Sequence[str] = (), code: int = 0) -> list[Sent]:
        """Replays a run; returns what it sent."""
        words = [word for reason in reasons for word in ("--reason", reason)]
        return self.command("replay", str(folder), *words, *_set(settings), code=code)

    def command(self, *words: str, code: int = 0) -> list[Sent]:
        self._seen = len(self.llm.server.bodies)
        assert main(list(words)) == code
        return self.llm.sent(self._seen)


def _set(settings: Sequence[str]) -> list[str]:
    return [word for one in settings for word in ("--set", one)]


def job_with(
    llm: Llm, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], queries: Sequence[str] = QUERIES
) -> str:
    """The config of such nights in the current folder, whose log is there."""
    pq.write_table(pa.table({"query": [*queries, queries[0]]}), "log.parquet")
    engine = {"kind": "openai", "model": "tiny", "base_url": llm.server.address, "attempts": 1}
    values["rewrite"] = {"engine": engine, "strategies": ["general", "keyword"]}
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 2}}
    return config_file(values)


def runs_below(output: Path) -> list[RunFolder]:
    """The runs, in the order in which they were started first."""
    found = [open_run(str(one.parent)) for one in output.glob("*/run.json")]
    return sorted(found, key=lambda one: one.storage.stat("lease/000001.json") and _began(one))


def _began(run: RunFolder) -> float:
    return float(json.loads(run.storage.get("lease/000001.json") or b"{}")["began"])


def folder_of(run: RunFolder) -> Path:
    return Path(run.storage.root)


def texts(run: RunFolder) -> dict[str, dict[str, str]]:
    """query -> strategy -> its text."""
    shown = {one["query_id"]: one["query"] for one in rows(folder_of(run), "queries")}
    found: dict[str, dict[str, str]] = {}
    for one in rows(folder_of(run), "rewrites"):
        found.setdefault(shown[one["query_id"]], {})[one["strategy"]] = one["text"]
    return found


def errors(run: RunFolder) -> set[tuple[str, str | None, str]]:
    """Query, component and reason of each row of errors/."""
    shown = {one["query_id"]: one["query"] for one in rows(folder_of(run), "queries")}
    return {(shown[one["query_id"]], one["component"], one["reason"]) for one in rows(folder_of(run), "errors")}
