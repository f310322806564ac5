"""31 nights in a row over a real log, with one store: what each asks, finds, takes and costs, and what its plan had said.

    DMQR_SHARED=FOLDER python tests/benchmarks/nights.py [--nights 31] [--rerank]

The log is FOLDER/logs/bing_covid_jan2020, a day after the other; the corpus is the sample's. A server at the wire stands in for
the LLM: its answer is made of the normalised query alone, so that a night by itself has the same rows. Each night is planned
and run, then run again by itself, without a store, in another output. It exits with 1 where the requests of all nights are not
the distinct queries of the month, where a night's rows are not those of the night by itself, where a plan has another number of
requests than its run, or bounds that do not hold the number of searches, of pairs, or the price.

With `--rerank`, a server at the wire scores pairs, by the words that they share.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import io
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))
from cluster.costs import load_prices
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job.prepare import prepare
from jobs.plan.plan import plan
from jobs.run.job import run_of
from jobs.run.run import run
from jobs.runs.folder import RunFolder, open_run
from jobs.terminal.live_display import LiveDisplay
from rewriters.normalise import normalise
from tests.support.jobs.whole_runs import ROOT, SAME, in_order, rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

CORPUS = ROOT / "configs" / "sample" / "corpus.parquet"
FIRST, NIGHTS = datetime.date(2020, 1, 1), 31
MONTH, APART = 6_256, 21_364  # distinct queries of the month, and the sum of those of its nights
PRICES = {"tokens": {"tiny": {"prompt": 0.15, "completion": 0.60}}, "searches": {"bm25": 20.0}}
COUNTED = ("requests", "searches", "pairs", "reused")
STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")


def answer(body: dict[str, Any]) -> str:
    """Rewrites that depend on the normalised query alone."""
    query = normalise(body["messages"][-1]["content"].rpartition("Query: ")[2])
    words, digits = query.split(), hashlib.sha256(query.encode()).hexdigest()
    picked = [VOCABULARY[int(digits[place : place + 4], 16) % len(VOCABULARY)] for place in range(0, 40, 4)]
    return json.dumps(
        {
            "general": f"{query} {picked[0]}",
            "keyword": ", ".join([*words[:3], *picked[1:3]]),
            "pseudo_answer": f"About {query}: {' '.join(picked)}.",
            "core_content": " ".join(words[:2]),
        }
    )


def vocabulary() -> list[str]:
    texts = pq.read_table(CORPUS, columns=["text"]).column("text").to_pylist()
    return sorted({word.strip(".,;:()\"'").lower() for text in texts for word in text.split()} - {""})


VOCABULARY = vocabulary()


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [float(len(set(query.casefold().split()) & set(text.casefold().split()))) - 2 for text in texts]


def config_file(place: Path, llm: FakeServer, reranker: FakeModels | None) -> str:
    log = Path(os.environ["DMQR_SHARED"]).absolute() / "logs" / "bing_covid_jan2020"
    rerank: dict[str, Any] = {"kind": "none"}
    if reranker is not None:
        rerank = {"kind": "server", "model": "reranker", "base_url": reranker.address, "keep": 10}
    values = {
        "name": "month",
        "log": {"path": f"{log}/date={{date}}/", "query_column": "query", "id_column": "row", "count_column": "popularity"},
        "rewrite": {
            "engine": {"kind": "openai", "model": "tiny", "base_url": llm.address, "max_in_flight": 32},
            "strategies": list(STRATEGIES),
        },
        "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": str(place / "index")}}, "depth": 30},
        "fuse": {"keep": 20},
        "rerank": rerank,
        "output": str(place / "runs"),
        "cluster": {"address": "none", "shard_size": 200},
    }
    (place / "prices.yaml").write_text(yaml.safe_dump(PRICES))
    path = place / "month.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


def paid(folder: RunFolder) -> Counter[str]:
    sums: Counter[str] = Counter()
    for stage, parts in folder.spent.items():
        for one in parts.values():
            sums.update({f"{stage} {name}": value for name, value in one.items() if name in COUNTED})
    return sums


def inside(of: dict[str, float], value: float) -> bool:
    return of["low"] - 1e-6 <= value <= of["high"] + 1e-6


def same_rows(folder: RunFolder, alone: RunFolder) -> bool:
    tables = [table for table in SAME if table in folder.tables]
    one, other = Path(folder.storage.root), Path(alone.storage.root)
    return all(in_order(rows(one, table)) == in_order(rows(other, table)) for table in tables)


def night(path: str, date: str, known: set[str], llm: FakeServer) -> dict[str, Any]:
    """Plans and runs a night, and runs it by itself; returns its row of the table, with what is wrong."""
    prices = load_prices(Path(path).parent / "prices.yaml")
    assert prices is not None
    began = time.perf_counter()
    missing = plan(prepare(load_config(path, date=date), path), LiveDisplay(io.StringIO()))["missing"]
    planned = time.perf_counter()
    sent = len(llm.bodies)
    job = run_of(prepare(load_config(path, date=date), path))
    run(job, LiveDisplay(io.StringIO()))
    calls, seconds = len(llm.bodies) - sent, time.perf_counter() - planned
    single = run_of(prepare(load_config(path, ["output=alone", "store=null"], date), path))
    run(single, LiveDisplay(io.StringIO()))
    folder, alone = (open_run(one.prepared.storage.root) for one in (job, single))
    ids = {one["query_id"] for one in rows(Path(folder.storage.root), "queries")}
    sums, usd = paid(folder), prices.usd(folder.spent)
    wrong = []
    if not same_rows(folder, alone):
        wrong.append("its rows are not those of the night by itself")
    kinds = missing["kinds"]
    if calls != kinds["generations"]["number"]["expected"] or calls != sums["rewrite requests"]:
        wrong.append(f"{calls} requests, {kinds['generations']['number']} planned")
    for kind, value in (("searches", sums["retrieve searches"]), ("pairs", sums["rerank pairs"])):
        if not inside(kinds[kind]["number"], value):
            wrong.append(f"{value} {kind}, {kinds[kind]['number']} planned")
    if not inside(missing["usd"], usd):
        wrong.append(f"${usd:.6f}, {missing['usd']} planned")
    row = {
        "night": date, "queries": len(ids), "new": len(ids - known), "calls": calls, "reused": sums["rewrite reused"],
        "seconds": seconds, "usd": usd, "alone_usd": prices.usd(alone.spent), "planned_usd": missing["usd"],
        "plan_seconds": planned - began, "wrong": wrong,
    }  # fmt: skip
    known |= ids
    return row


def lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| night | queries | new | calls | reused | seconds | USD | planned USD | USD by itself |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in found:
        bounds = f"{one['planned_usd']['low']:.4f} to {one['planned_usd']['high']:.4f}"
        yield (
            f"| {one['night']} | {one['queries']:,} | {one['new']:,} | {one['calls']:,} | {one['reused']:,} "
            f"| {one['seconds']:.1f} | {one['usd']:.4f} | {bounds} | {one['alone_usd']:.4f} |"
        )
    names = ("queries", "new", "calls", "reused", "seconds", "usd", "alone_usd")
    sums = {name: sum(one[name] for one in found) for name in names}
    yield (
        f"| all | {sums['queries']:,} | {sums['new']:,} | {sums['calls']:,} | {sums['reused']:,} | {sums['seconds']:.0f} "
        f"| {sums['usd']:.4f} | | {sums['alone_usd']:.4f} |"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nights", type=int, default=NIGHTS)
    options.add_argument("--rerank", action="store_true")
    given = options.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nights-")))
        os.chdir(place)
        llm = stack.enter_context(FakeServer(["tiny"], text=answer))
        reranker = stack.enter_context(FakeModels("vllm", "reranker", score=score)) if given.rerank else None
        path, known = config_file(place, llm, reranker), set[str]()
        index(load_config(path, date=str(FIRST)), [str(CORPUS)], LiveDisplay(io.StringIO()))
        found = []
        for number in range(given.nights):
            found.append(night(path, str(FIRST + datetime.timedelta(days=number)), known, llm))
            one = found[-1]
            told = f"{one['queries']:,} queries, {one['calls']:,} calls"
            told += f", plan {one['plan_seconds']:.1f} s, run {one['seconds']:.1f} s"
            print(f"{one['night']}: {told}; {'; '.join(one['wrong']) or 'as planned'}", file=sys.stderr, flush=True)
    print("\n".join(lines(found)))
    wrong = [words for one in found for words in one["wrong"]]
    calls, apart = sum(one["calls"] for one in found), sum(one["queries"] for one in found)
    if calls != len(known):
        wrong.append(f"{calls:,} requests for {len(known):,} distinct queries")
    if given.nights == NIGHTS and (calls, apart) != (MONTH, APART):
        wrong.append(f"{calls:,} requests, {apart:,} queries of nights; {MONTH:,} and {APART:,} were to be there")
    print("\n".join(wrong) or f"{calls:,} requests in place of {apart:,}: {1 - calls / apart:.1%} less", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
