"""What each strategy and each pool of them is worth and costs, and what searching texts together saves.

    DMQR_SHARED=FOLDER python tests/benchmarks/pool_table.py [--indexes FOLDER] [--values FILE]

100 recorded queries each of SciFact, MuSiQue and Cranfield, read by the package's `Rewriter`; BM25 (english) and exact dense
(MiniLM, mean pooling); default fusion unless a table says otherwise; no rerank. Prints Markdown. Every query's values go to a
Parquet file, which pool_check.py computes again. `--encoder` takes the encoder of a config as JSON (with other `--indexes`).
Indexes are built where they are missing (on two idle cores 2 to 5 minutes each).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pool_arms import SINGLE, TOGETHER, Arm, Gathered, Outcome, answer, gather
from pool_tokens import arm_cost
from recorded_sets import DATA, ENCODER, INDEXES, NDCG, RECALL
from scipy.stats import ttest_rel

FOUR, RAG_FUSION = "original + four", "original + rag_fusion"
POOLS = (
    "original + adaptive",
    "original + keyword + pseudo_answer",
    "original + keyword + hyde",
    "original + pseudo_answer + hyde",
    "original + rag_fusion + pseudo_answer",
    "original + rag_fusion + hyde",
    "original + rag_fusion + expand",
    "original + rag_fusion + decompose",
    "original + rag_fusion + adaptive",
    "original + four + rag_fusion",
    "original + four + hyde + expand",
    "original + four + rag_fusion + hyde",
    "original + four + rag_fusion + hyde + expand",
    "original + all",
)
QUALITY = ("original", *SINGLE, *(f"original + {name}" for name in SINGLE), FOUR, *POOLS)
MODES = (FOUR, RAG_FUSION, *(f"original + {name}" for name in ("keyword", "pseudo_answer", "hyde", "decompose")), *POOLS)
FEW = (
    FOUR,
    RAG_FUSION,
    "original + adaptive",
    "original + rag_fusion + hyde",
    "original + four + rag_fusion",
    "original + four + rag_fusion + hyde + expand",
    "original + all",
)
REDUNDANCY = ("none", "overlap", "cosine")
DENSE_WEIGHTS = (0.5, 1.0, 2.0)


class Case(NamedTuple):
    """An arm with what is changed of the defaults; the key of what is kept of it."""

    arm: str
    mode: str = "lists"
    redundancy: str = "cosine"
    dense: float = 1.0

    def of(self, found: Gathered) -> Outcome:
        changed: dict[str, Any] = {"redundancy": self.redundancy}
        if self.dense != 1:
            changed["retriever_weights"] = {"dense": self.dense}
        return answer(found, Arm(self.arm), self.mode, **changed)


def cases() -> list[Case]:
    """Every case of every table, each once."""
    found = [Case(arm) for arm in QUALITY]
    found += [Case(arm, mode, redundancy) for arm, mode, redundancy in product(MODES, TOGETHER, ("none", "cosine"))]
    found += [Case(arm, mode, redundancy) for arm, mode, redundancy in product(FEW, TOGETHER, REDUNDANCY)]
    found += [Case(arm, mode, "cosine", weight) for arm, mode, weight in product(FEW, ("lists", "both"), DENSE_WEIGHTS)]
    return list(dict.fromkeys(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--indexes", type=Path, default=INDEXES, help="where indexes are kept")
    parser.add_argument("--values", type=Path, default=Path("/tmp/pool_table.parquet"), help="every query's values")
    parser.add_argument("--encoder", type=json.loads, default=ENCODER, help="as in a config, as JSON")
    parser.add_argument(
        "--sets", nargs="*", choices=list(DATA), default=list(DATA), help="those to compute; values of others stay as they are"
    )
    options = parser.parse_args()
    wanted = cases()
    outcomes = _read(options.values, without=options.sets) if options.values.exists() else {}
    sides = {}
    for name in options.sets:
        began = time.perf_counter()
        found = gather(name, options.indexes, {(Arm(case.arm), case.mode) for case in wanted}, options.encoder)
        outcomes |= {(name, case): case.of(found) for case in wanted}
        sides[name] = _sides(name, options.indexes, options.encoder)
        _write(options.values, outcomes)
        print(f"{name}: {len(found.query_ids)} queries, {time.perf_counter() - began:.0f} s", flush=True)
    sets = [name for name in DATA if any(name == of_set for of_set, _ in outcomes)]
    tables = Tables(sets, outcomes)
    tables.quality()
    tables.tests(Case(FOUR), "the four")
    tables.tests(Case(RAG_FUSION), "RAG-Fusion")
    tables.together("cosine")
    tables.together("none")
    tables.grid("Redundancy weights", FEW, tuple(TOGETHER), "redundancy", REDUNDANCY)
    tables.grid("Weight of the dense lists", FEW, ("lists", "both"), "dense", DENSE_WEIGHTS)
    _calls(sets)
    _print_sides(sides, options.encoder)
    print(f"\n{options.values}: values of {len(outcomes)} cases")


class Tables:
    """Prints the outcomes of the cases."""

    def __init__(self, sets: Sequence[str], outcomes: dict[tuple[str, Case], Outcome]) -> None:
        self._sets, self._outcomes = sets, outcomes

    def quality(self) -> None:
        rows = []
        for name in QUALITY:
            case = Case(name)
            costs = [arm_cost(one, Arm(name)) for one in self._sets]
            rows.append(
                [
                    name,
                    f"{self._mean(case, lambda one: one.texts):.1f}",
                    f"{self._mean(case, lambda one: one.searches):.1f}",
                    f"{np.mean([cost.calls for cost in costs]):.0f}",
                    f"{np.mean([cost.prompt for cost in costs]):.0f} + {np.mean([cost.completion for cost in costs]):.0f}",
                    *(f"{figure(self._values(case, one)):} / {figure(self._values(case, one, RECALL))}" for one in self._sets),
                    f"{self._overall(case)} / {self._overall(case, RECALL)}",
                    p_value(self._pooled(case), self._pooled(Case(FOUR))),
                    p_value(self._pooled(case), self._pooled(Case(RAG_FUSION))),
                ]
            )
        head = ["arm", "texts", "searches", "calls", "tokens (prompt + completion)"]
        table(
            "Quality and cost per query, as lists: nDCG@10 / R@10; p: paired t-test of nDCG@10, pooled",
            [*head, *self._sets, "mean", "p four", "p RAG-Fusion"],
            rows,
        )

    def tests(self, base: Case, name: str) -> None:
        """Differences of nDCG@10 from a case, with p of paired t-tests."""
        rows = []
        for arm in QUALITY:
            case = Case(arm)
            if case != base:
                pairs = [(self._values(case, one), self._values(base, one)) for one in self._sets]
                pairs.append((self._pooled(case), self._pooled(base)))
                rows.append([arm, *(f"{(a - b).mean():+.3f} ({p_value(a, b)})" for a, b in pairs)])
        table(f"nDCG@10 against {name} (p, two-sided)", ["arm", *self._sets, "pooled"], rows)

    def together(self, redundancy: str) -> None:
        rows = []
        for arm, mode in product(MODES, TOGETHER):
            case, base = Case(arm, mode, redundancy), Case(arm, "lists", redundancy)
            rows.append(
                [
                    arm if mode == "lists" else "",
                    mode,
                    f"{self._mean(case, lambda one: one.searches):.1f}",
                    *(figure(self._values(case, one)) for one in self._sets),
                    self._overall(case),
                    self._overall(case, RECALL),
                    p_value(self._pooled(case), self._pooled(base)),
                    p_value(self._pooled(case), self._pooled(Case(FOUR))),
                    p_value(self._pooled(case), self._pooled(Case(RAG_FUSION))),
                ]
            )
        head = ["arm", "together", "searches", *self._sets, "mean", "R@10", "p lists", "p four", "p RAG-Fusion"]
        table(f"Texts searched together, redundancy {redundancy}: nDCG@10", head, rows)

    def grid(self, title: str, arms: Sequence[str], modes: Sequence[str], field: str, values: Sequence[Any]) -> None:
        rows = []
        for arm, mode in product(arms, modes):
            of = [Case(arm, mode)._replace(**{field: value}) for value in values]
            cells = (" / ".join(figure(self._values(case, one)) for case in of) for one in self._sets)
            rows.append([arm, mode, *cells, " / ".join(self._overall(case) for case in of)])
        table(f"{title}, {' / '.join(map(str, values))}: nDCG@10", ["arm", "together", *self._sets, "mean"], rows)

    def _values(self, case: Case, name: str, measure: Any = NDCG) -> np.ndarray:
        return self._outcomes[name, case].values[measure]

    def _pooled(self, case: Case) -> np.ndarray:
        return np.concatenate([self._values(case, name) for name in self._sets])

    def _overall(self, case: Case, measure: Any = NDCG) -> str:
        return figure(np.array([self._values(case, name, measure).mean() for name in self._sets]))

    def _mean(self, case: Case, of: Callable[[Outcome], np.ndarray]) -> float:
        return float(np.mean([of(self._outcomes[name, case]).mean() for name in self._sets]))


def figure(values: np.ndarray) -> str:
    return f"{values.mean():.3f}".replace("0.", ".", 1)


def p_value(one: np.ndarray, other: np.ndarray) -> str:
    """p of a paired t-test; "=" where no query differs."""
    if np.array_equal(one, other):
        return "="
    p = float(ttest_rel(one, other).pvalue)
    return "<.001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def _calls(sets: Sequence[str]) -> None:
    """One joint call and one each for the others, against one call for every strategy."""
    rows = []
    for arm, calls in product((FOUR, "original + four + rag_fusion", "original + all"), ("joint", "separate")):
        costs = np.mean([arm_cost(name, Arm(arm), calls) for name in sets], axis=0)
        rows.append([arm, calls, f"{costs[0]:.0f}", *(f"{cost:.0f}" for cost in (costs[1], costs[2], costs[1] - costs[2]))])
    head = ["pool", "calls", "number", "prompt tokens", "before the query, in blocks of 16", "others"]
    table("Joint call against separate calls, per query", head, rows)


def _sides(name: str, indexes: Path, encoder: dict[str, Any]) -> dict[str, list[float]]:
    """nDCG@10 of pseudo-answers and passages, alone, searched as passages and as queries; empty where both are the same."""
    if encoder.get("query_prefix", "") == encoder.get("passage_prefix", ""):
        return {}
    found = [gather(name, indexes, [], encoder, side) for side in ("passage", "query")]
    arms = ("pseudo_answer", "hyde", FOUR, "original + hyde")
    return {arm: [float(answer(one, Arm(arm)).values[NDCG].mean()) for one in found] for arm in arms}


def _print_sides(sides: dict[str, dict[str, list[float]]], encoder: dict[str, Any]) -> None:
    if not any(sides.values()):
        print(f"\nPassage side against query side: {encoder['model']} has no prefixes, and BM25 knows none: both are the same.")
        return
    arms = next(iter(sides.values()))
    rows = [[arm, *(" / ".join(f"{value:.3f}" for value in of_set[arm]) for of_set in sides.values())] for arm in arms]
    table("Searched as passage / as query: nDCG@10", ["arm", *sides], rows)


def _write(path: Path, outcomes: dict[tuple[str, Case], Outcome]) -> None:
    """One row per set, case and query."""
    parts = []
    for (name, case), outcome in outcomes.items():
        size = len(outcome.query_ids)
        columns: dict[str, Any] = {"set": [name] * size} | {key: [value] * size for key, value in case._asdict().items()}
        columns |= {"query_id": outcome.query_ids, "ndcg": outcome.values[NDCG], "recall": outcome.values[RECALL]}
        parts.append(pa.table(columns | {"texts": outcome.texts, "searches": outcome.searches}))
    pq.write_table(pa.concat_tables(parts), path)


def _read(path: Path, without: Sequence[str]) -> dict[tuple[str, Case], Outcome]:
    """The outcomes of a file, without those of some sets."""
    rows: dict[tuple[str, Case], list[dict[str, Any]]] = {}
    for row in pq.read_table(path).to_pylist():
        if row["set"] not in without:
            rows.setdefault((row["set"], Case(*(row[field] for field in Case._fields))), []).append(row)
    return {
        key: Outcome(
            [row["query_id"] for row in of_case],
            {NDCG: np.array([row["ndcg"] for row in of_case]), RECALL: np.array([row["recall"] for row in of_case])},
            np.array([row["texts"] for row in of_case]),
            np.array([row["searches"] for row in of_case]),
        )
        for key, of_case in rows.items()
    }


if __name__ == "__main__":
    main()
