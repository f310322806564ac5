"""The cost of an ablation beside the run that it shares its work with: time, calls, searches, pairs, memory.

    DMQR_SHARED=FOLDER python tests/benchmarks/ablation_speed.py [--cases subsets,command,grid,pairs] [--rounds 3]
        [--queries 2000] [--corpus SciFact]

    subsets  `rerank.kind: none`: the 16 subsets of the four with the original and the 15 without it, over 2,000 web queries,
             beside `run` of the same config, in turn. Goal: gathering and answering within 1.10 x, with its calls and searches.
    command  the commands `ablate` (31 arms, compared, report) and `run` (report) on the 100 recorded queries of --corpus, in
             turn. Goal: within 1.3 x.
    grid     some 500 arms of fusion over the same 2,000 queries: time, peak memory, size of results/.
    pairs    a tiny cross-encoder (random weights), BM25, 31 arms over 20 queries: the scored pairs beside the union of those
             of each arm as a run of its own.

BM25 (english) and exact dense (MiniLM) over --corpus. Completions are made from the queries' own words; judgements of the web
queries are drawn at random, so that statistics have something to do. Each measured thing is a process of its own, in a fresh
folder; CPU is that of the process and its threads.
"""

import argparse
import io
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, ENCODER, INDEXES, LABELS, recorded_rows, recording, retrievers, shared
from results import peak_mib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
GRID: dict[str, list[Any]] = {
    "fuse.method": ["rrf", "minmax", "weighted", "best"],
    "fuse.redundancy": ["none", "overlap", "cosine"],
    "fuse.k": [10, 60],
    "fuse.depth": [10, 30, 100],
    "fuse.retriever_weights": [{"dense": weight} for weight in (0, 0.25, 0.5, 1, 1.5, 2, 4)],
}
Figures = dict[str, Any]


def web_log(folder: Path, queries: int, name: str) -> dict[str, Any]:
    """Writes a log, completions and judgements of web queries; returns what they add to a config."""
    texts = list(dict.fromkeys(pq.read_table(shared() / "logs/terabyte05_50k/log.parquet")["query"].to_pylist()))[:queries]
    pq.write_table(pa.table({"query": texts}), folder / "log.parquet")
    doc_ids = pq.read_table(shared() / "data" / DATA[name][0] / "corpus.parquet", columns=["doc_id"])["doc_id"].to_pylist()
    draw = np.random.default_rng(1)
    with (folder / "recorded.jsonl").open("w") as recorded, (folder / "qrels.tsv").open("w") as qrels:
        for number, query in enumerate(texts):
            words = query.split()
            made = {
                "general": f"about {query}",
                "keyword": ", ".join(words),
                "pseudo_answer": f"{query} is what this passage tells, with figures and methods.",
                "core_content": " ".join(words[: max(1, len(words) // 2)]),
            }
            recorded.write(json.dumps({"query": query, "completions": {"dmqr": json.dumps(made)}}) + "\n")
            for doc_id in draw.choice(doc_ids, 20, replace=False):
                qrels.write(f"log.parquet#{number}\t{doc_id}\t1\n")
    return {
        "log": {"path": str(folder / "log.parquet"), "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(folder / "recorded.jsonl")}},
        "evaluate": {"qrels": str(folder / "qrels.tsv")},
    }


def recorded_log(folder: Path, name: str) -> dict[str, Any]:
    """Writes the log of the recorded queries of a set; returns what it adds to a config."""
    rows = recorded_rows(name)
    pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), folder / "log.parquet")
    return {
        "log": {"path": str(folder / "log.parquet"), "query_column": "query", "id_column": "query_id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(recording(name))}},
        "evaluate": {"qrels": str(shared() / "data" / DATA[name][0] / "qrels.tsv")},
    }


def written(folder: Path, values: dict[str, Any], name: str, **changed: Any) -> Path:
    """Writes a config and returns its path; its output is new each time."""
    index = {"kind": "local", "index": str(INDEXES / DATA[name][0])}
    base = {
        "name": "speed",
        "retrieve": {"retrievers": {"bm25": index, "dense": index | {"encoder": ENCODER}}},
        "rerank": {"kind": "none"},
        "limits": {"error_rate": 1.0},
        "output": tempfile.mkdtemp(prefix="runs-", dir=folder),
        "cluster": {"address": "none"},
    }
    merged = base | values
    merged["rewrite"] = {"strategies": list(LABELS.values())} | values["rewrite"]
    path = Path(base["output"]) / "config.yaml"  # type: ignore[arg-type]
    path.write_text(yaml.safe_dump(merged | changed, sort_keys=False), encoding="utf-8")
    return path


def measured(verb: str, config: Path) -> Figures:
    """Returns what `run` or `ablate` took, step by step, in a process of its own."""
    command = [sys.executable, __file__, "--one", verb, str(config)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def one(verb: str, config: str) -> Figures:
    """Returns seconds and CPU seconds of checking, working and closing; calls, searches, pairs; memory in MiB."""
    from jobs.config.load import load_config
    from jobs.job.measure_checks import named_judgements
    from jobs.job.prepare import prepare
    from jobs.pages.ablation import compared, write_pages
    from jobs.run.ablation import prepare_ablation
    from jobs.run.job import run_of
    from jobs.run.run import run
    from jobs.runs.folder import open_run
    from jobs.terminal.live_display import LiveDisplay

    def timed(name: str, do: Callable[[], Any]) -> Any:
        began, busy = time.perf_counter(), time.process_time()
        value = do()
        figures[f"{name}_s"], figures[f"{name}_cpu"] = time.perf_counter() - began, time.process_time() - busy
        figures[f"{name}_mib"] = peak_mib()
        return value

    figures: Figures = {}
    loaded = load_config(config)
    job = timed("check", lambda: run_of(prepare(loaded, config)) if verb == "run" else prepare_ablation(loaded, config))
    prepared, judgements = job.prepared, named_judgements(loaded)
    timed("work", lambda: run(job, LiveDisplay(io.StringIO())))
    folder = open_run(prepared.storage.root)
    if verb == "ablate":
        found = timed("compare", lambda: compared(folder, judgements, loaded.evaluate, prepared.prices))
        timed("report", lambda: write_pages(found, texts=True))
        figures["arms"] = len(folder.record["ablation"]["arms"])
    for kind, stage in (("requests", "rewrite"), ("searches", "retrieve"), ("pairs", "rerank")):
        entries = folder.spent.get(stage, {})
        figures[kind] = int(sum(values.get(kind, 0) for values in entries.values()))
    figures["results_mb"] = sum(path.stat().st_size for path in Path(folder.storage.root).glob("results/*")) / 1e6
    figures["folder"] = folder.storage.root
    return figures


def compare_pairs(title: str, pairs: list[tuple[Figures, Figures]], goal: float, part: str) -> bool:
    """Prints ratios of an ablation to its run, pair by pair; returns whether the median of wall or CPU is within the goal."""
    best = False
    for unit in ("s", "cpu"):
        ratios = [ablation[f"{part}_{unit}"] / run[f"{part}_{unit}"] for run, ablation in pairs]
        medians = [statistics.median(one[f"{part}_{unit}"] for one in of) for of in zip(*pairs, strict=True)]
        middle = statistics.median(ratios)
        word = {"s": "wall", "cpu": "CPU"}[unit]
        print(
            f"{title}, {word}: run {medians[0]:.1f} s, ablate {medians[1]:.1f} s; ratio by pairs: median {middle:.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}), goal {goal}",
            flush=True,
        )
        best |= middle <= goal
    return best


def subsets(folder: Path, name: str, queries: int, rounds: int) -> bool:
    values, pairs = web_log(folder, queries, name), []
    for number in range(rounds):
        run = measured("run", written(folder, values, name))
        ablation = measured("ablate", written(folder, values, name, ablate={"subsets": "all"}))
        pairs.append((run, ablation))
        print(f"subsets {number}: run {_shown(run)}\n           ablate {_shown(ablation)}", flush=True)
    same = all(run[kind] == ablation[kind] for run, ablation in pairs for kind in ("requests", "searches"))
    print(f"calls and searches are {'exactly' if same else 'NOT'} those of the run: {pairs[0][1]['requests']:,} and "
          f"{pairs[0][1]['searches']:,}")  # fmt: skip
    return compare_pairs(f"subsets, {pairs[0][1]['arms']} arms, {queries:,} queries", pairs, 1.1, "work") and same


def commands(folder: Path, name: str, rounds: int) -> bool:
    """The whole commands, from the start of Python to the end."""
    values, pairs = recorded_log(folder, name), []
    for number in range(rounds):
        pair = []
        for verb, more in (("run", {}), ("ablate", {"ablate": {"subsets": "all"}})):
            config = written(folder, values, name, **more)
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "jobs", verb, str(config)], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            pair.append({"work_s": time.perf_counter() - began, "work_cpu": cpu})
        print(f"command {number}: run {_shown(pair[0])}; ablate {_shown(pair[1])}", flush=True)
        pairs.append((pair[0], pair[1]))
    return compare_pairs("whole command, 100 queries", pairs, 1.3, "work")


def grid(folder: Path, name: str, queries: int) -> bool:
    figures = measured("ablate", written(folder, web_log(folder, queries, name), name, ablate={"grid": GRID}))
    print(f"grid, {figures['arms']} arms, {queries:,} queries: {_shown(figures)}", flush=True)
    return True


def pairs(folder: Path, name: str, queries: int = 20) -> bool:
    """Checks that exactly the union of the arms' candidates is scored, each pair once."""
    from jobs.config.load import load_config
    from jobs.job.prepare import prepare
    from jobs.run.ablation import prepare_ablation
    from jobs.run.job import run_of
    from jobs.run.run import run
    from jobs.runs.folder import open_run
    from jobs.terminal.live_display import LiveDisplay
    from tests.support.retrievers.tiny_reranker import make_reranker

    corpus = pq.read_table(shared() / "data" / DATA[name][0] / "corpus.parquet", columns=["text"])["text"].to_pylist()
    make_reranker(folder / "reranker", corpus[:300])
    rerank = {"kind": "cross_encoder", "model": str(folder / "reranker"), "max_length": 128}
    words = {"retrievers": {"bm25": {"kind": "local", "index": str(INDEXES / DATA[name][0])}}}  # vectors depend on their batch
    values = web_log(folder, queries, name) | {"retrieve": words}
    config = str(written(folder, values, name, rerank=rerank, ablate={"subsets": "all"}))
    ablation = prepare_ablation(load_config(config), config)
    run(ablation, LiveDisplay(io.StringIO()))
    scored = _pairs(ablation.prepared.storage.root)
    union: set[tuple[str, str]] = set()
    alone = 0
    for arm in ablation.compiled.arms:
        prepared = prepare(arm.config.model_copy(update={"output": f"{arm.config.output}/alone"}), config)
        run(run_of(prepared), LiveDisplay(io.StringIO()))
        own = _pairs(prepared.storage.root)
        union |= set(own)
        alone += len(own)
    spent = open_run(ablation.prepared.storage.root).spent["rerank"]
    charged = int(sum(values.get("pairs", 0) for values in spent.values()))
    exact = len(scored) == len(set(scored)) == charged and set(scored) == union
    print(
        f"pairs, {len(ablation.compiled.arms)} arms, {queries} queries: {len(scored):,} scored, {charged:,} charged; "
        f"union of the runs' {len(union):,}, sum {alone:,}, {alone / len(scored):.1f} x: {'exact' if exact else 'NOT exact'}"
    )
    return exact


def _pairs(folder: str) -> list[tuple[str, str]]:
    rows = pq.ParquetDataset(f"{folder}/scores").read(["query_id", "doc_id"])
    return list(zip(rows.column("query_id").to_pylist(), rows.column("doc_id").to_pylist(), strict=True))


def _shown(figures: Figures) -> str:
    return ", ".join(
        f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value:,}"
        for name, value in figures.items()
        if not isinstance(value, str)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="subsets,command,grid,pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", choices=DATA, default="SciFact")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--one", nargs=2, metavar=("VERB", "CONFIG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return 0
    name = options.corpus
    retrievers(name, INDEXES)
    met = []
    for case in options.cases.split(","):
        folder = Path(tempfile.mkdtemp(prefix="dmqr-ablation-speed-"))
        try:
            met.append(
                {
                    "subsets": lambda: subsets(folder, name, options.queries, options.rounds),  # noqa: B023
                    "command": lambda: commands(folder, name, options.rounds),  # noqa: B023
                    "grid": lambda: grid(folder, name, options.queries),  # noqa: B023
                    "pairs": lambda: pairs(folder, name),  # noqa: B023
                }[case]()
            )
        finally:
            shutil.rmtree(folder)
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
