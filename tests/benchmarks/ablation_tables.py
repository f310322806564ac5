"""The methods of the pool by the verb `ablate`, in the layout of DMQR-RAG's Table 2; one of the four left out, as its Table 4.

    DMQR_SHARED=FOLDER python tests/benchmarks/ablation_tables.py [--sets scifact,musique,cranfield] [--typos 0.3]
        [--rerank MODEL]

100 recorded queries of each set; BM25 (english) and exact dense (MiniLM, mean pooling), 100 hits each; default fusion; no
rerank unless `--rerank` names the weights of a cross-encoder. `--typos` puts typing errors into the originals as they are
searched and reranked, at this rate; rewrites and judgements stay those of the clean query. Prints Markdown. Indexes are built
where they are missing (on two idle cores 2 to 5 minutes a set); ablations of one `--work` share what they gather.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, ENCODER, INDEXES, LABELS, recorded_rows, recording, retrievers, shared

ROOT = Path(__file__).resolve().parents[2]
FOUR = list(LABELS.values())
OTHERS = ["rag_fusion", "hyde", "step_back", "decompose", "expand"]
MEASURES = ["nDCG@10", "R@10", "P@5", "Success@5", "RR@10"]
SHORT = {"Success@5": "H@5", "RR@10": "RR@10"}
ALONE = {"fuse.weights.original": 0}


class Method(NamedTuple):
    """A row of a table: its words, and the arm."""

    words: str
    arm: str


METHODS = [
    Method("OQR: the original query", "original"),
    Method("GQR: general alone", "general"),
    Method("KWR: keyword alone", "keyword"),
    Method("PAR: pseudo-answer alone", "pseudo_answer"),
    Method("CCE: core content alone", "core_content"),
    Method("RAG-Fusion, with the original", "original+rag_fusion"),
    Method("RAG-Fusion alone", "rag_fusion"),
    Method("HyDE alone", "hyde"),
    Method("HyDE, with the original", "original+hyde"),
    Method("step-back, with the original", "original+step_back"),
    Method("decomposition alone", "decompose"),
    Method("decomposition, with the original", "original+decompose"),
    Method("expansion alone", "expand"),
    Method("expansion, with the original", "original+expand"),
    Method("DMQR: original + the four", "full"),
    Method("DMQR, the four alone", "four alone"),
    Method("DMQR, adaptive + original", "adaptive"),
    Method("all nine + original", "all"),
]
LEFT_OUT = [Method("DMQR: original + the four", "full")] + [
    Method(f"without {words}", f"without {name}")
    for words, name in zip(("GQR", "KWR", "PAR", "CCE"), FOUR, strict=True)
] + [Method("without the original", "four alone")]  # fmt: skip


def arms() -> dict[str, dict[str, Any]]:
    """The arms that are not always there, nor leave one out."""
    found: dict[str, dict[str, Any]] = {}
    for name in OTHERS:
        found[name] = {"rewrite.strategies": [name], **ALONE}
        found[f"original+{name}"] = {"rewrite.strategies": [name]}
    return found | {
        "four alone": dict(ALONE),
        "adaptive": {"rewrite.select": {"kind": "adaptive"}},
        "all": {"rewrite.strategies": [*FOUR, *OTHERS]},
    }


def write_config(name: str, work: Path, typos: float | None, model: str | None) -> Path:
    """Writes a set's log and config, and builds its index where it is missing; returns the path of the config."""
    data = DATA[name][0]
    retrievers(name, INDEXES)
    rows = recorded_rows(name)
    pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), work / f"{data}.parquet")
    index = {"kind": "local", "index": str(INDEXES / data)}
    values = {
        "name": data,
        "log": {"path": str(work / f"{data}.parquet"), "query_column": "query", "id_column": "query_id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(recording(name))}, "strategies": FOUR},
        "retrieve": {
            "retrievers": {"bm25": index, "dense": index | {"encoder": ENCODER}},
            "typos": {"rate": typos} if typos else None,
        },
        "rerank": {"kind": "cross_encoder", "model": model, "max_length": 256} if model else {"kind": "none"},
        "ablate": {"subsets": "leave_one_out", "arms": arms()},
        "evaluate": {"qrels": str(shared() / "data" / data / "qrels.tsv"), "measures": MEASURES, "min_effect": 0.01},
        "limits": {"error_rate": 1},
        "output": str(work / "runs"),
        "cluster": {"address": "none"},
    }
    path = work / f"{data}{'-typos' * bool(typos)}{'-reranked' * bool(model)}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


class Measured:
    """What `ablate --json` said of one set, against the original, and against the full arm."""

    def __init__(self, config: Path) -> None:
        began = time.perf_counter()
        self.to_original, self.to_full = (ablated(config, baseline) for baseline in ("original", "full"))
        self.seconds = time.perf_counter() - began

    def of(self, arm: str, measure: str, *, full: bool = False) -> dict[str, Any]:
        arms = (self.to_full if full else self.to_original)["comparison"]["arms"]
        (found,) = (one["measures"][measure] for one in arms if one["arm"] == arm)
        return dict(found)


def ablated(config: Path, baseline: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "jobs", "ablate", str(config), "--json", "--set", f"evaluate.baseline={baseline}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table_2(found: dict[str, Measured]) -> None:
    """Methods as rows, measures of each set as columns; marks: best, and the adjusted test against the original."""
    head = [f"{name} {SHORT.get(one, one)}" for name in found for one in MEASURES]
    rows = []
    for method in METHODS:
        cells = []
        for of in found.values():
            for measure in MEASURES:
                one = of.of(method.arm, measure)
                best = max(of.of(other.arm, measure)["mean"] for other in METHODS)
                cells.append(cell(one, bold=round(one["mean"], 3) == round(best, 3)))
        rows.append([method.words, *cells])
    table(["method", *head], rows)


def differences(found: dict[str, Measured], measure: str) -> None:
    """The difference of each method to the original: interval, p, and p adjusted."""
    rows = []
    for method in METHODS[1:]:
        cells = []
        for of in found.values():
            one = of.of(method.arm, measure)
            cells.append(
                f"{one['difference']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f}), p {_p(one['p'])}, "
                f"Holm {_p(one['p_holm'])}; {one['wins']}/{one['ties']}/{one['losses']}"
            )
        rows.append([method.words, *cells])
    table([f"{measure}: difference to OQR", *found], rows)


def table_4(found: dict[str, Measured], measures: Sequence[str]) -> None:
    """Leaving one out: means with their tests against all of them, and the average loss over the sets."""
    head = [f"{name} {SHORT.get(one, one)}" for name in found for one in measures]
    rows = []
    for method in LEFT_OUT:
        cells = [cell(of.of(method.arm, measure, full=True)) for of in found.values() for measure in measures]
        losses = [-np.mean([of.of(method.arm, one, full=True)["difference"] for of in found.values()]) for one in measures]
        rows.append([method.words, *cells, *("-" if method.arm == "full" else f"{loss:+.4f}" for loss in losses)])
    table(["method", *head, *(f"average loss {SHORT.get(one, one)}" for one in measures)], rows)


def cell(one: dict[str, Any], bold: bool = False) -> str:
    """A mean, bold where it is the best; * where p, adjusted by Holm's method, is below .05; † where p alone is."""
    mean = f"{one['mean']:.3f}".replace("0.", ".", 1)
    holm, p = one["p_holm"], one["p"]
    mark = "" if holm is None else r"\*" if holm < 0.05 else "†" if p < 0.05 else ""
    return f"**{mean}**{mark}" if bold else f"{mean}{mark}"


def _p(p: float | None) -> str:
    return "-" if p is None else "<.001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="scifact,musique,cranfield")
    parser.add_argument("--typos", type=float, help="rate of typing errors")
    parser.add_argument("--rerank", help="weights of a cross-encoder; blended with the fused order")
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-ablation-tables"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    wanted = options.sets.split(",")
    names = [name for name in DATA if name.lower() in wanted]
    found = {name: Measured(write_config(name, options.work, options.typos, options.rerank)) for name in names}
    for name, of in found.items():
        comparison, work = of.to_original["comparison"], of.to_original["work"]
        done = ", ".join(f"{work['executed'][kind]:,} {kind} in place of {work['naive'][kind]:,}" for kind in work["naive"])
        print(f"{name}: {comparison['counted']} queries in {comparison['clusters']} clusters; {len(comparison['arms'])} arms, "
              f"{done}; {of.seconds:.0f} s", flush=True)  # fmt: skip
    table_2(found)
    differences(found, "nDCG@10")
    table_4(found, ["P@5", "nDCG@10"])


if __name__ == "__main__":
    main()
