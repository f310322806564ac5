"""Does what rewriting gains over a hybrid search survive a reranker? On the sets with recorded answers, by `dmqr ablate`.

    DMQR_SHARED=FOLDER python tests/benchmarks/rerank_survival.py [--sets MuSiQue,SciFact] [--work FOLDER]

The arms of rerank_survival.yaml, once without a reranker and once with each of RERANKERS; the baseline is always the original
query, searched by BM25 and dense and reranked in the same way. Writes measured/rerank-survival.md, and the tables of
docs/rewriting-and-reranking.md. Pairs are scored once for all arms (12 minutes a set on two cores that are shared) and kept in
the store of --work, so that a second start takes two.

Over the sets a difference is tested as `dmqr evaluate` does (`jobs/measure/join.py`). Holm goes over the arms of one
reranker. A gain survives where it is above 0 with p by Holm below .05; it is gone where two one-sided t-tests hold it within
the smallest difference that matters (.02); else it is open. An answer leaks where one of the gold answers stands in one of the
arm's rewrites, word by word, and not in the query.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from ablations import HERE, ablated, figure, set_folder
from page_tables import DOCS, put_tables
from recorded_sets import DATA, shared
from results import table
from scipy import stats

from jobs.measure.answers.overlap import normalised_answer
from jobs.measure.clusters import query_clusters
from jobs.measure.join import StratifiedTest, stratified_test
from jobs.measure.significance import ALPHA, PairedTest, holm, paired_test
from jobs.runs.folder import open_run
from jobs.runs.reading import database
from jobs.runs.rewrites import searched_rewrites

PAGE = DOCS / "rewriting-and-reranking.md"
CONFIG = "rerank_survival"
MARGIN = 0.02  # `evaluate.min_effect` of the config
FEWEST = 5  # queries of a part that has a mean
BASELINE, TYPED = "original", "MuSiQue"  # the set with types and gold answers
NONE, CROSS, BLEND, PERFECT = "none", "cross-encoder", "cross-encoder, blended", "perfect"
SHORT = {NONE: "fused", BLEND: "blended"}
SHOWN = {"full": "DMQR: original + the four", "the four alone": "the four", "adaptive": "original + the adaptive of the four"}


def rerankers() -> dict[str, str]:
    """Returns name -> value of `rerank`."""
    cross = f"{{kind: cross_encoder, model: {shared() / 'models/minilm-cross-encoder'}, max_length: 256, combine: %s}}"
    return {
        NONE: "{kind: none}",
        CROSS: cross % "replace",
        BLEND: cross % "blend",
        PERFECT: "{kind: perfect_reranker.py:Perfect, combine: replace}",
    }


class Outcome(NamedTuple):
    """What an ablation of one set with one reranker has measured."""

    folder: str
    arms: list[str]
    keys: list[str]
    """Judged queries."""
    values: np.ndarray
    """(arms, keys): nDCG@10."""
    clusters: np.ndarray
    pairs: int
    """That were scored, or found in the store."""

    def gains(self) -> np.ndarray:
        """Returns (arms, keys): each arm's value minus the baseline's."""
        found: np.ndarray = self.values - self.values[self.arms.index(BASELINE)]
        return found


def outcome(folder: Path, found: dict[str, Any]) -> Outcome:
    """Returns the values of the first measure, by arm and query."""
    first = found["comparison"]["measures"][0]
    rows = pq.read_table(folder / found["folder"] / "per_query.parquet").to_pandas()
    cells = rows[rows.measure == first].pivot(index="arm", columns="key", values="value")
    arms = [one["arm"] for one in found["comparison"]["arms"]]
    keys = [str(key) for key in cells.columns]
    texts = {str(row["query_id"]): row["query"] for row in pq.read_table(folder / "log.parquet").to_pylist()}
    clusters = np.asarray(query_clusters([texts[key] for key in keys]))
    pairs = found["work"]["executed"].get("pairs", 0)
    return Outcome(str(folder / found["folder"]), arms, keys, cells.loc[arms].to_numpy(), clusters, pairs)


def stratified_equivalence_p(test: StratifiedTest, margin: float) -> np.ndarray:
    """Returns (series,): the greater p of two one-sided t-tests, that the mean over sets is above -margin and below margin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = stats.t.sf((test.mean + margin) / test.error, test.freedom)
        below = stats.t.cdf((test.mean - margin) / test.error, test.freedom)
    return np.maximum(above, below)


def interval(test: StratifiedTest, place: int) -> str:
    """Returns a gain with its 95 % interval, in words."""
    return f"{test.mean[place]:+.3f} ({test.low[place]:+.3f} to {test.high[place]:+.3f})"


class Survival:
    """Tables of gains, by set and reranker."""

    def __init__(self, found: dict[tuple[str, str], Outcome], sets: Sequence[str], names: Sequence[str]) -> None:
        """Takes (set, reranker) -> outcome."""
        self._found, self._sets, self._names = found, sets, names
        self.arms = [arm for arm in found[sets[0], names[0]].arms if arm != BASELINE]

    def _of_sets(self, name: str, less: str | None = None) -> list[PairedTest]:
        """Returns the gains of each set with a reranker, of all arms but the baseline; less those with another."""
        found = []
        for of in self._sets:
            one, other = self._found[of, name], None if less is None else self._found[of, less]
            series = one.gains() - (0 if other is None else other.gains())
            assert other is None or (one.keys, one.arms) == (other.keys, other.arms)
            found.append(paired_test(series[[one.arms.index(arm) for arm in self.arms]], one.clusters))
        return found

    def gains(self) -> str:
        """Returns the table of gains over all sets: a row an arm, a column a reranker."""
        columns = {name: cells(stratified_test(self._of_sets(name))) for name in self._names}
        base = [
            np.mean([of.values[of.arms.index(BASELINE)].mean() for of in (self._found[one, name] for one in self._sets)])
            for name in self._names
        ]
        rows = [["the original alone: nDCG@10", *map(figure, base)]]
        rows += [[shown(arm), *(columns[name][n] for name in self._names)] for n, arm in enumerate(self.arms)]
        return table(["searched", *self._names], rows)

    def gains_by_set(self) -> str:
        """Returns the gains of each set, with intervals: a row a reranker and an arm."""
        rows = []
        for name in self._names:
            of_sets = self._of_sets(name)
            every = [stratified_test(parts) for parts in (of_sets, *([one] for one in of_sets))]
            tested = [(one, holm(one.p), stratified_equivalence_p(one, MARGIN)) for one in every]
            rows += [
                [name, arm, *(f"{interval(one, n)}, {probability(p[n])}, {probability(q[n])}" for one, p, q in tested)]
                for n, arm in enumerate(self.arms)
            ]
        return table(["reranker", "arm", "all sets: gain, p by Holm, p of TOST", *self._sets], rows)

    def kept(self) -> str:
        """Returns what a reranker adds to a gain, or takes: the gain with it minus that without one, over all sets."""
        plain = stratified_test(self._of_sets(NONE))
        names = [name for name in self._names if name != NONE]
        changes = [stratified_test(self._of_sets(name, less=NONE)) for name in names]
        rows = [[shown(arm), f"{plain.mean[n]:+.3f}", *(interval(of, n) for of in changes)] for n, arm in enumerate(self.arms)]
        return table(["searched", "gain, fused", *names], rows)

    def split(self, parts: Callable[[Outcome, str], dict[str, np.ndarray]], names: Sequence[str]) -> str:
        """Returns the gains of the typed set, part by part of its queries: a row an arm, a column a reranker and a part."""
        rows, heads = [], []
        for arm in self.arms:
            row, heads = [shown(arm)], []
            for title, chosen in parts(self._found[TYPED, NONE], arm).items():
                heads += [title, *(SHORT.get(name, name) for name in names)]
                row.append(str(int(chosen.sum())))
                for name in names:
                    one = self._found[TYPED, name]
                    if chosen.sum() < FEWEST:
                        row.append("-")
                        continue
                    tested = paired_test(one.gains()[[one.arms.index(arm)]][:, chosen], one.clusters[chosen])
                    row.append(f"{tested.mean[0]:+.3f}{'†' * bool(tested.p[0] < ALPHA)}")
            rows.append(row)
        return table(["searched", *heads], rows)


def cells(gains: StratifiedTest) -> list[str]:
    """Returns each gain with its verdict: `*` survives, (worse) lost by Holm, `=` within the margin."""
    found = []
    for mean, p, equal in zip(gains.mean, holm(gains.p), stratified_equivalence_p(gains, MARGIN), strict=True):
        mark = (r"\*" if mean > 0 else " (worse)") if p < ALPHA else ""
        found.append(f"{mean:+.3f}{mark}{' =' * bool(equal < ALPHA)}")
    return found


def shown(arm: str) -> str:
    """Returns what a table calls an arm."""
    return SHOWN.get(arm, arm.replace("+", " + "))


def probability(p: float) -> str:
    return "-" if np.isnan(p) else "<.001" if p < 0.001 else figure(p)


def by_hops(one: Outcome, arm: str) -> dict[str, np.ndarray]:
    """Returns the parts of MuSiQue by the hops that begin an id."""
    hops = np.array([int(key[0]) for key in one.keys])
    return {"2 hops": hops == 2, "3 and 4 hops": hops > 2}


def by_leak(one: Outcome, arm: str) -> dict[str, np.ndarray]:
    """Returns the parts of MuSiQue by whether a gold answer stands in a rewrite of the arm, and not in the query."""
    rows = pq.read_table(shared() / "data" / DATA[TYPED][0] / "queries.parquet").to_pylist()
    golds = {row["query_id"]: [words(gold) for gold in row["answers"]] for row in rows}
    queries = {row["query_id"]: words(row["query"]) for row in rows}
    run = open_run(one.folder)
    ids = {row["log_id"]: row["query_id"] for row in pq.read_table(run.tables["query_map"]).to_pylist()}
    texts: dict[str, list[str]] = {}
    with database() as connection:
        for found in searched_rewrites(connection, run, list(ids.values()), arm):
            texts.setdefault(found.query_id, []).append(words(found.text))
    leaks = np.array(
        [
            any(gold in text and gold not in queries[key] for gold in golds[key] for text in texts.get(ids[key], ()))
            for key in one.keys
        ],
        bool,
    )
    return {"answer in a rewrite": leaks, "in none": ~leaks}


def words(text: str) -> str:
    """Returns a text as answers are compared, so that a part of it is whole words."""
    return f" {normalised_answer(text)} "


def linked(folder: Path, name: str) -> Path:
    """Returns a set's folder with its corpus, which the perfect reranker reads."""
    if not (folder / "corpus.parquet").exists():
        (folder / "corpus.parquet").symlink_to(shared() / "data" / DATA[name][0] / "corpus.parquet")
    return folder


def main() -> None:
    """Runs what is missing, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-ablations"))
    parser.add_argument("--sets", default="MuSiQue,SciFact,Cranfield")
    options = parser.parse_args()
    sets = options.sets.split(",")
    found = {}
    for name in sets:
        folder = linked(set_folder(name, options.work), name)
        for reranker, value in rerankers().items():
            found[name, reranker] = outcome(folder, ablated(folder, CONFIG, [f"rerank={value}"]))
    survival = Survival(found, sets, list(rerankers()))
    tables = {
        "gains": survival.gains(),
        "kept": survival.kept(),
        "leaks": survival.split(by_leak, (NONE, CROSS, BLEND, PERFECT)),
        "hops": survival.split(by_hops, (NONE, CROSS, BLEND, PERFECT)),
    }
    counts = [f"{name}: {len(found[name, CROSS].keys)} queries, {found[name, CROSS].pairs:,} pairs" for name in sets]
    parts = ["; ".join(counts) + ".", *tables.values(), survival.gains_by_set()]
    (HERE / "measured" / "rerank-survival.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    put_tables(PAGE, tables)


if __name__ == "__main__":
    main()
