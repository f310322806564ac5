"""An ablation's folder and what is known of it, invented: arms, values, differences, funnel, costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.run.shards import SUCCESS, Manifest, Plan, Shard, commit, put_plan, write_table
from cluster.storage.files import FileStorage
from jobs.config.config import Config
from jobs.counts import QUANTITIES
from jobs.measure.comparison import Comparison, differences
from jobs.measure.costs import ArmCost
from jobs.measure.strategies import Funnel, Worth
from jobs.runs.folder import RunFolder, open_run
from jobs.tables import STORED
from tests.support.jobs.report_runs import frame_of

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]
MEASURES = ("nDCG@10", "R@10", "P@5", "Success@5")
STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")


@dataclass
class ArmOf:
    """An arm as the test wants it; `effect` is what it adds to the values of the original."""

    name: str
    family: str = "arms"
    strategies: tuple[str, ...] = STRATEGIES
    effect: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    original: bool = True

    def described(self) -> Row:
        """Returns the arm as `run.json` has it."""
        chosen = {"k": 1, "members": list(self.members)} if self.members else {"k": None, "members": []}
        return {
            "name": self.name, "family": self.family, "strategies": list(self.strategies), "original": self.original,
            "changes": self.changes, **chosen,
        }  # fmt: skip


ARMS = [
    ArmOf("full", "always", effect=0.06),
    ArmOf("original", "always", ()),
    ArmOf("general", "always", ("general",), 0.01, original=False),
    ArmOf("keyword", "always", ("keyword",), -0.04, original=False),
    ArmOf("without general", "subsets", STRATEGIES[1:], 0.05),
    ArmOf("without keyword", "subsets", ("general", *STRATEGIES[2:]), 0.065),
    ArmOf("fuse.k=10", "grid", effect=0.055, changes={"fuse.k": 10}),
    ArmOf("full #2", "samples", effect=0.058),
    ArmOf("full #3", "samples", effect=0.061),
]


def values_of(arms: Sequence[ArmOf], keys: int, seed: int = 7) -> Floats:
    """Returns invented values (arms, measures, keys): those of the original, moved on some keys by the arm's effect."""
    random = np.random.default_rng(seed)
    hard = random.beta(1.2, 1.0, keys)
    hard[random.random(keys) < 0.2] = 0
    values = np.empty((len(arms), len(MEASURES), keys))
    shared = random.normal(0, 0.5, keys)  # queries that any rewrite helps
    for place, arm in enumerate(arms):
        moved = np.zeros(keys) if arm.name == "original" else (shared + random.normal(0, 1, keys)) * 0.12 + arm.effect
        still = random.random(keys) < 0.35
        values[place, 0] = np.round(np.clip(np.where(still, hard, hard + moved), 0, 1), 3)
        values[place, 1] = np.round(np.clip(values[place, 0] * 1.1 + random.normal(0, 0.05, keys), 0, 1) * 6) / 6
        values[place, 2] = np.round(np.clip(values[place, 0] * 0.5, 0, 1) * 5) / 5
        values[place, 3] = values[place, 0] > 0.3
    return values


def comparison_of(arms: Sequence[ArmOf], values: Floats, baseline: str = "original", **further: Any) -> Comparison:
    """Returns a comparison of these values."""
    names = tuple(arm.name for arm in arms)
    keys = values.shape[2]
    random = np.random.default_rng(3)
    given: dict[str, Any] = {"keys": tuple(f"k{n}" for n in range(keys)), "key": "query_id"}
    given |= {name: further.pop(name) for name in ("keys", "query_ids", "queries", "key") if name in further}
    frame = frame_of(
        values, arms=names, measures=MEASURES, counts=random.integers(1, 9, keys), condensed=np.clip(values * 1.05, 0, 1),
        unjudged=np.linspace(0.1, 0.3, len(names)), **given,
    )  # fmt: skip
    families = {arm.name: arm.family for arm in arms}
    oracles = frozenset(arm.name for arm in arms if arm.members)
    found = tuple(differences(frame, baseline, 0.01, families, oracles))
    return Comparison(
        frame, baseline, 0.01, {arm.name: arm.described() for arm in arms}, found, **({"slices": (), "notes": ()} | further)
    )


def funnel_of(strategies: Sequence[str] = STRATEGIES, scale: int = 1) -> Funnel:
    """Returns an invented funnel."""
    rows: dict[str, list[int | None]] = {}
    for n, name in enumerate(strategies):
        alone = (120 - 25 * n) * scale
        rows[name] = [900 * scale - 40 * n, alone, int(alone * 0.8), int(alone * 0.5), int(alone * 0.23)]
    return Funnel(300, 1500 * scale, 1200 * scale, rows)


def worth_of(strategies: Sequence[str] = STRATEGIES) -> list[Worth]:
    """Returns invented worths."""
    return [Worth(name, 0.31 - 0.1 * n, 4.2 - 0.5 * n, 0.42 - 0.05 * n) for n, name in enumerate(strategies)]


def costs_of(arms: Sequence[ArmOf], comparison: Comparison | None = None, *, priced: bool = True) -> list[ArmCost]:
    """Returns invented costs: by strategies and by what an arm changes."""
    random = np.random.default_rng(5)
    gains = {one.arm: one.difference for one in comparison.differences if one.measure == MEASURES[0]} if comparison else {}
    found: list[ArmCost] = []
    for arm in arms:
        if arm.members:
            continue
        rewrites = 300 * len(arm.strategies)
        seconds = 12 + rewrites * 0.9 * random.uniform(0.9, 1.1)
        usd = 0.004 + rewrites * 0.00035 * random.uniform(0.8, 1.4)
        gain = gains[arm.name] / usd if arm.name in gains else None
        found.append(
            dict.fromkeys((*QUANTITIES, *(f"alone_{name}" for name in QUANTITIES)), 0)
            | {
                "arm": arm.name, "seconds": seconds, "device_seconds": seconds * 0.6, "requests": rewrites,
                "prompt_tokens": rewrites * 210, "completion_tokens": rewrites * 48, "searches": 600 + 2 * rewrites,
                "pairs": 9000, "standalone_usd": usd if priced else None, "marginal_usd": usd * 0.1 if priced else None,
                "gain_per_usd": gain if priced else None,
            }
        )  # fmt: skip
    return found


def ablation_at(
    folder: Path,
    arms: Sequence[ArmOf] = ARMS,
    results: Sequence[tuple[str, str, Sequence[str]]] = (),
    rewrites: Sequence[tuple[str, str, str, str]] = (),
    **settings: Any,
) -> RunFolder:
    """Writes an ablation's folder and opens it; results: query_id, arm, doc_ids; rewrites: query_id, strategy, text, arm."""
    storage = FileStorage(str(folder / "subsets-0123456789ab"))
    values = {
        "name": "subsets", "output": "runs", "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": list(STRATEGIES)},
        "retrieve": {"retrievers": {name: {"kind": "local", "index": "index"} for name in ("bm25", "dense")}},
        "evaluate": {"qrels": "qrels.tsv", "measures": list(MEASURES)},
    } | settings  # fmt: skip
    config = Config.model_validate(values)
    ranked = [
        {"query_id": name, "arm": arm, "rank": rank, "doc_id": doc_id, "score": 1.0, "fused_score": 1.0}
        for name, arm, doc_ids in results
        for rank, doc_id in enumerate(doc_ids, start=1)
    ]
    made = [
        {"query_id": name, "strategy": strategy, "position": 1, "text": text, "weight": 1.0, "position_weight": 1.0, "arm": arm}
        for name, strategy, text, arm in rewrites
    ]
    with_arm = (
        STORED["rewrites"] if "arm" in STORED["rewrites"].names else STORED["rewrites"].append(pa.field("arm", pa.string()))
    )
    tables = {
        "results": pa.Table.from_pylist(ranked, STORED["results"]),
        "rewrites": pa.Table.from_pylist(made, with_arm),
    }
    put_plan(
        storage, Plan([], {"log_rows": 3, "queries": 3, "rejected": 0}, 1000, {}, [Shard(0, "queries/plan.parquet", 0, 3)])
    )
    files = {name: [write_table(storage, name, 0, table)] for name, table in tables.items() if table.num_rows}
    counts = {"arm/full/requests/dmqr@m": 9600, "arm/full/searches/bm25@": 40000}
    spent = {"rewrite": {"dmqr@m": {"requests": 1100.0, "reused": 100.0}}, "retrieve": {"bm25@": {"searches": 5000.0}}}
    commit(storage, Manifest(0, 1, files, counts, spent))
    start = {
        "start": 1,
        "began": "2026-03-01T01:02:03Z",
        "wall_seconds": 75.0,
        "status": "finished",
        "outages": [],
        "queued": {},
        "pools": {"rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0}},
        "resources": {"nodes": 1, "cpus": 4.0, "gpus": 0.0},
    }
    record = {
        "run_id": "subsets-0123456789ab", "status": "finished", "config": config.model_dump(), "config_file": "subsets.yaml",
        "versions": {"python": "3.11", "vllm": None}, "indexes": {}, "starts": [start],
        "ablation": {"arms": [arm.described() for arm in arms]},
    }  # fmt: skip
    storage.put("run.json", json.dumps(record).encode())
    storage.put(SUCCESS, b"{}")
    return open_run(storage.root)
