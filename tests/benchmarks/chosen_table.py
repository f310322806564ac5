"""One text of each query (`rewrite.select: {kind: qpp}`) beside the original alone and all texts fused, by the verb `ablate`.

    DMQR_SHARED=FOLDER python tests/benchmarks/chosen_table.py [--sets scifact,musique,cranfield]

100 recorded queries of each set; BM25 (english), 100 hits; no reranker. Prints Markdown: nDCG@10, and of how many queries which
text was chosen. Indexes are built where they are missing; `--work` is a new folder.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from ablation_tables import FOUR, ablated, cell, table, write_config
from recorded_sets import DATA

POOLS = {
    "the four": FOUR,
    "general, keyword, core_content": ["general", "keyword", "core_content"],
    "rag_fusion": ["rag_fusion"],
}
WAYS = {"all fused": {"kind": "all"}} | {name: {"kind": "qpp", "predictor": name} for name in ("avg_idf", "max_idf")}
MEASURE = "nDCG@10"
FULL = "the four, all fused"  # the config itself


def arms() -> dict[str, dict[str, Any]]:
    """Each pool in each way."""
    return {
        f"{pool}, {way}": {"rewrite.strategies": strategies, "rewrite.select": select}
        for pool, strategies in POOLS.items()
        for way, select in WAYS.items()
        if f"{pool}, {way}" != FULL
    }


def measured(name: str, work: Path) -> dict[str, Any]:
    """What `ablate --json` says of one set."""
    path = write_config(name, work, None, None)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    del values["retrieve"]["retrievers"]["dense"]
    values["ablate"] = {"arms": arms()}
    values["evaluate"]["measures"] = [MEASURE]
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return ablated(path, "original")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="scifact,musique,cranfield")
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-chosen-table"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    found = {name: measured(name, options.work) for name in DATA if name.lower() in options.sets.split(",")}

    def row(arm: str) -> list[str]:
        of_arm = [next(one for one in of["comparison"]["arms"] if one["arm"] == arm) for of in found.values()]
        chosen: Counter[str] = Counter()
        for of in found.values():
            chosen.update(of["chosen"].get(arm, {}))
        return [*(cell(one["measures"][MEASURE]) for one in of_arm), ", ".join(f"{k} {n}" for k, n in chosen.most_common())]

    rows = [["original alone", *row("original")], [FULL, *row("full")], *([arm, *row(arm)] for arm in arms())]
    table([MEASURE, *found, "chosen, of all queries"], rows)


if __name__ == "__main__":
    main()
