"""Small jobs against a server that takes 200 ms for an answer: dmqr beside the script that one would write in its place.

    python tests/benchmarks/small_jobs.py [--queries 20,2000,10000] [--in-flight 64] [--rounds 3] [--sides script,none,...]

A process of its own answers each request after 200 ms with four rewrites. The script (below) sends one request per query with
asyncio and aiohttp, searches the original and the rewrites with bm25s, fuses by reciprocal ranks and writes one Parquet file of
results; it has no journal, no retries, no resume and no costs. dmqr does its whole run over the same queries, documents and
places: without Ray (`cluster.address: none`), and with a Ray of its own (`local`). Ray alone starts Ray as `local` does and
sends one block through two actors and a task that do nothing: what of `local` is Ray's own start. Each is a process, timed from
its start to its end, once unmeasured and then in turn within a round. The table has the medians: seconds, CPU seconds and peak
memory (of the sides without Ray, whose processes are all waited for), seconds to the first commit, and the script's seconds
divided by those of each; "steady" is of the queries which the largest size has more than the one before it. The ideal is
places / 200 ms. With the sizes and sides of its defaults it writes its section of RESULTS.md.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from results import measured_on, put_section

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 0.2  # of an answer
SIZES = "20,2000,10000"
DEPTH, KEEP, RRF = 30, 10, 60
SIDES = {"script": "asyncio script", "none": "dmqr without Ray", "local": "dmqr with Ray", "ray": "Ray alone, one block"}
KINDS = ("general", "keyword", "pseudo_answer", "core_content")
INSTRUCTIONS = (
    "Rewrite the search query at the end in four ways, each of which is to find other documents: a general one, keywords, a "
    "short passage that answers it, and its core alone. Answer with a JSON object whose keys are general, keyword, "
    "pseudo_answer and core_content, and nothing else. Keep names, numbers and the language of the query. "
) * 6


class Figures(NamedTuple):
    """Figures of one process."""

    seconds: float
    cpu: float
    first_commit: float
    peak: float  # MiB of the largest of its processes that were waited for


# ---------------------------------------------------------------- the script


async def _answers(address: str, queries: list[str], places: int) -> list[list[str]]:
    import aiohttp

    limit, url = asyncio.Semaphore(places), f"{address}/chat/completions"

    async def ask(session: aiohttp.ClientSession, query: str) -> list[str]:
        messages = [{"role": "user", "content": f"{INSTRUCTIONS}\n\nQuery: {query}"}]
        body = {"model": "tiny", "messages": messages, "temperature": 0.0, "max_tokens": 512}
        async with limit, session.post(url, json=body) as response:
            response.raise_for_status()
            answer = await response.json()
        found = json.loads(answer["choices"][0]["message"]["content"])
        return [query, *(found[kind] for kind in KINDS)]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(*(ask(session, query) for query in queries))


def script(folder: Path, address: str, places: int, queries: int) -> None:
    """Rewrites, searches, fuses, writes."""
    import bm25s
    import Stemmer

    corpus = pq.read_table(folder / "corpus.parquet")
    doc_ids, stemmer = corpus["doc_id"].to_pylist(), Stemmer.Stemmer("english")
    index = bm25s.BM25.load(folder / "script-index")
    wanted = pq.read_table(folder / f"log-{queries}.parquet")["query"].to_pylist()
    texts = asyncio.run(_answers(address, wanted, places))
    flat = [text for of in texts for text in of]
    tokens = bm25s.tokenize(flat, stopwords="en", stemmer=stemmer, show_progress=False)
    hits, _ = index.retrieve(tokens, k=DEPTH, show_progress=False)
    rows: dict[str, list[Any]] = {"query": [], "rank": [], "doc_id": [], "score": []}
    for number, query in enumerate(wanted):
        scores: defaultdict[int, float] = defaultdict(float)
        for ranked in hits[number * 5 : number * 5 + 5].tolist():
            for rank, document in enumerate(ranked, start=1):
                scores[document] += 1 / (RRF + rank)
        best = sorted(scores.items(), key=lambda one: (-one[1], doc_ids[one[0]]))[:KEEP]
        for rank, (document, score) in enumerate(best, start=1):
            for name, value in zip(rows, (query, rank, doc_ids[document], score), strict=True):
                rows[name].append(value)
    pq.write_table(pa.table(rows), folder / "script.parquet")


# ---------------------------------------------------------------- Ray alone


class Idle:
    """An actor that passes blocks on."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block."""
        return table


def ray_alone(folder: Path) -> None:
    """Sends one block through two actors and a task, and writes a file when it has come out."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    import ray.data

    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=True)
    data = ray.data.from_blocks([pa.table({"shard": [0]})])
    batches: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow", "zero_copy_batch": True}
    for _ in range(2):
        data = data.map_batches(Idle, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=1, **batches)
    data = data.map_batches(Idle(), **batches)
    for _ in data.iter_batches(batch_size=None):
        commits = folder / "runs/ray-0/commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / "0.json").touch()
    ray.shutdown()


# ---------------------------------------------------------------- the server


def serve() -> None:
    """Prints the server's address, and serves until it is ended."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.support.rewriters.fake_server import FakeServer

    def text(body: dict[str, Any]) -> str:
        query = body["messages"][-1]["content"].rstrip().rpartition("\n")[2].removeprefix("Query: ")
        words = query.split()
        answers = (f"about {query}", ", ".join(words), f"{query} is what this passage tells.", " ".join(words[:2]))
        return json.dumps(dict(zip(KINDS, answers, strict=True)))

    with FakeServer(seconds=SECONDS, text=text) as server:
        print(server.address, flush=True)
        sys.stdin.read()


@contextmanager
def serving() -> Iterator[str]:
    """Runs the server in a process of its own; yields its address."""
    command = [sys.executable, __file__, "--serve"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


# ---------------------------------------------------------------- what is measured


def prepare(folder: Path, sizes: list[int], documents: int = 5000) -> None:
    """Writes documents and logs of words that Zipf's law would give, and the indexes of both sides."""
    import bm25s
    import Stemmer

    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghiklmnoprstuvw", k=chance.randint(3, 9))) for _ in range(20_000)]
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    texts = [" ".join(chance.choices(words, cum_weights=weights, k=60)) for _ in range(documents)]
    ids = [f"d{number:05}" for number in range(documents)]
    pq.write_table(pa.table({"doc_id": ids, "title": [""] * documents, "text": texts}), folder / "corpus.parquet")
    queries: dict[str, None] = {}
    while len(queries) < max(sizes):
        queries[" ".join(chance.choices(words, cum_weights=weights, k=chance.randint(3, 6)))] = None
    for size in sizes:
        pq.write_table(pa.table({"query": list(queries)[:size]}), folder / f"log-{size}.parquet")
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False), show_progress=False
    )
    index.save(folder / "script-index")


def configure(folder: Path, address: str, options: argparse.Namespace, side: str, size: int, number: int) -> Path:
    """Writes the config of a run; returns its path."""
    engine = {"kind": "openai", "base_url": address, "model": "tiny", "max_in_flight": options.in_flight}
    cluster = {"address": side if side == "local" else "none", "shard_size": options.shard_size}
    return write_config(folder, f"{side}-{size}-{number}", size, engine, cluster)


def write_config(folder: Path, name: str, size: int, engine: dict[str, Any], cluster: dict[str, Any]) -> Path:
    """Writes the config of a run over the first queries, with the documents of `prepare`; returns its path."""
    values = {
        "name": name,
        "log": {"path": f"log-{size}.parquet", "query_column": "query"},
        "rewrite": {"engine": engine, "strategies": list(KINDS)},
        "retrieve": {"depth": DEPTH, "retrievers": {"bm25": {"kind": "local", "index": "index"}}},
        "fuse": {"method": "rrf", "k": RRF, "keep": KEEP, "redundancy": "none"},
        "rerank": {"kind": "none"},
        "output": "runs",
        "store": None,
        "cluster": cluster,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def timed(command: list[str], folder: Path, name: str) -> Figures:
    """Runs a process to its end; its CPU seconds are those of descendants that were waited for: not all of Ray's are."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "RAY_AUTH_MODE": "disabled"}
    began, first = time.monotonic(), 0.0
    with open(folder / "out.log", "ab") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if not first and any(folder.glob(f"runs/{name}-*/commits/*.json")):
            first = time.monotonic() - began
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            cpu = used.ru_utime + used.ru_stime
            break
        time.sleep(0.02)
    seconds = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{(folder / 'out.log').read_text()[-3000:]}")
    return Figures(seconds, cpu, first, used.ru_maxrss / 1024)


def main() -> None:
    """Prints each figure as it comes, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", default=SIZES)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--shard-size", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--script", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--ray-alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.ray_alone:
        return ray_alone(Path(options.ray_alone))
    if options.script:
        folder, address, queries = options.script
        return script(Path(folder), address, options.in_flight, int(queries))
    where = measured_on(("ray", "bm25s", "aiohttp", "pyarrow"))
    sizes, sides = sorted(int(size) for size in options.queries.split(",")), options.sides.split(",")
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    python, here = sys.executable, str(Path(__file__).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, sizes)
        with serving() as address:
            config = configure(folder, address, options, "script", sizes[0], 0)
            timed([python, "-m", "jobs", "index", config.name, "--corpus", "corpus.parquet"], folder, "index")
            for number in range(-1, options.rounds):  # the first is not measured: what is read from the disk is in memory then
                for size in sizes if number >= 0 else sizes[:1]:
                    for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                        if side == "ray" and size != sizes[0]:
                            continue  # it has no queries
                        config = configure(folder, address, options, side, size, number)
                        command = [python, "-m", "jobs", "run", config.name]
                        if side == "ray":
                            command = [python, here, "--ray-alone", name]
                            shutil.rmtree(folder / "runs/ray-0", ignore_errors=True)
                        if side == "script":
                            in_flight = ["--in-flight", str(options.in_flight)]
                            command = [python, here, *in_flight, "--script", name, address, str(size)]
                        figures = timed(command, folder, "ray" if side == "ray" else config.stem)
                        if number < 0:
                            continue
                        found[side, size].append(figures)
                        words = ", ".join(f"{key} {value:.2f}" for key, value in figures._asdict().items())
                        print(f"{number} {size} {SIDES[side]}: {words}", flush=True)
    body = (
        f"`python tests/benchmarks/small_jobs.py {' '.join(sys.argv[1:])}`, {options.rounds} rounds, "
        f"{options.in_flight} requests in flight,\n{where}\n\n{table(found, sizes, sides, options.in_flight)}"
    )
    print(body)
    if options.queries == SIZES and sides == list(SIDES):
        put_section("Small jobs", body)
    return None


def table(found: dict[tuple[str, int], list[Figures]], sizes: list[int], sides: list[str], places: int) -> str:
    """Returns the medians, as Markdown."""
    medians = {of: Figures(*map(statistics.median, zip(*figures, strict=True))) for of, figures in found.items()}
    lines = [
        "| queries | what | seconds | CPU seconds | first commit | peak MiB | queries/s | script's seconds / its |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def line(label: str, side: str, queries: int, one: Figures, of_script: float | None) -> str:
        rate = f"{queries / one.seconds:.0f}" if one.seconds > 0 else ""
        ratio = f"{of_script / one.seconds:.2f}" if of_script is not None and one.seconds > 0 else ""
        own = ["", ""] if side in ("local", "ray") else [f"{one.cpu:.1f}", f"{one.peak:.0f}" if one.peak else ""]
        of_queries = ["", ""] if side == "ray" else [rate, ratio]
        first = f"{one.first_commit:.1f}" if one.first_commit else ""
        cells = (label, SIDES[side], f"{one.seconds:.1f}", own[0], first, own[1], *of_queries)
        return f"| {' | '.join(cells)} |"

    for size in sizes:
        of_script = medians["script", size].seconds if "script" in sides else None
        lines += [line(f"{size:,}", side, size, medians[side, size], of_script) for side in sides if (side, size) in medians]
    if len(sizes) > 1:
        before, last = sizes[-2:]
        more = {
            side: Figures(
                medians[side, last].seconds - medians[side, before].seconds,
                medians[side, last].cpu - medians[side, before].cpu,
                0,
                0,
            )
            for side in sides
            if side != "ray"
        }
        of_script = more["script"].seconds if "script" in more else None
        lines += [line("steady", side, last - before, one, of_script) for side, one in more.items()]
    return "\n".join([*lines, f"\nIdeal: {places / SECONDS:.0f} queries/s."])


if __name__ == "__main__":
    main()
