"""What only one arm needs: an ablation without the arm makes just that much less."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.counts import QUANTITIES
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import RunFolder
from jobs.runs.sums import arm_needs
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import finished
from tests.support.retrievers.blocks import index_fields

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "yeast", "zzz"]
STRATEGIES = ["general", "keyword"]
OWN = ["hyde", "rag_fusion"]  # each has a request of its own; rag_fusion has several texts
RERANKED = {"rerank.kind": "bi_encoder"}
Make = Callable[..., RunFolder]


def words(query: str, style: str) -> dict[str, str]:
    joint = {
        "general": f"{style}tell me about {query}",
        "keyword": query.partition(" ")[0],
        "core_content": f"{query} explained",
    }
    fusion = "\n".join(f"{n}. {style}{query} {word}" for n, word in enumerate(("sea", "flour", "stars"), 1))
    return {
        "dmqr": json.dumps(joint),
        "hyde": f"{query} is about the sea.",
        "rag_fusion": fusion,
        "general": joint["general"],
        "keyword": joint["keyword"],
        "query_type": "keyword" if query in ("yeast", "zzz") else "general",
    }


@pytest.fixture
def make(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], served_dense: dict[str, Any],
    config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """Runs an ablation of a small job that shares nothing with others; one query has no recorded answer."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    for name, style in (("recorded", ""), ("other", "please ")):
        lines = [{"query": query, "completions": words(query, style)} for query in QUERIES[1:]]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = STRATEGIES
    values["retrieve"] |= {"retrievers": {"bm25": bm25, "dense": served_dense}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 3}}
    path = config_file(values)
    made = []

    def ablated(ablate: dict[str, Any], *settings: str) -> RunFolder:
        made.append(ablate)
        ablation = prepare_ablation(
            load_config(path, [*settings, f"ablate={json.dumps(ablate)}", f"output=runs{len(made)}"]), path
        )
        return finished(ablation)

    return ablated


def executed(folder: RunFolder) -> Counter[str]:
    """Returns what was made, by quantity; nothing was there before, so what was reused another query of it had made."""
    made: Counter[str] = Counter()
    for kind, stage in QUANTITIES.items():
        for sums in folder.spent.get(stage, {}).values():
            made[kind] += int(sums.get(kind, 0) + sums.get("reused", 0))
    return made


def alone(folder: RunFolder, arm: str) -> Counter[str]:
    names = [one["name"] for one in folder.record["ablation"]["arms"]]
    found: Counter[str] = Counter(dict.fromkeys(QUANTITIES, 0))
    for need in arm_needs(folder.counts, names)[arm].alone:
        found[need.quantity] += need.amount
    return found


JOINT: dict[str, dict[str, Any]] = {
    "shared": {"fuse.k": 10},
    "reranked": {**RERANKED, "fuse.keep": 3},
    "reranked, shared": {**RERANKED, "fuse.keep": 3, "rerank.combine": "replace"},
    "reranked deep": RERANKED,
    "several": {"rewrite.strategies": [*STRATEGIES, *OWN]},
    "two of three": {"rewrite.strategies": [{"rag_fusion": {"n": 2}}]},
    "together": {"retrieve.retrievers.bm25.together": True},
    "other model": {"rewrite.engine.path": "other.jsonl"},
    "by chance": {"rewrite.select": {"kind": "random_k", "k": 1}},
}
LEFT_OUT = ["shared", "reranked deep", "several", "together", "words"]


@pytest.fixture
def joint(corpus: Path, tmp_path: Path) -> dict[str, dict[str, Any]]:
    # another retriever, for one strategy: the texts of the others are not searched in it
    build_local_index(tmp_path / "plain", corpus, index_fields("unicode"))
    words = {"kind": "local", "index": str(tmp_path / "plain"), "analyzer": "unicode"}
    return JOINT | {"words": {"retrieve.retrievers": {"words": words}, "rewrite.strategies": ["keyword"]}}


@pytest.mark.slow
def test_an_ablation_without_an_arm_makes_less_by_what_only_the_arm_needs(make: Make, joint: dict[str, dict[str, Any]]) -> None:
    whole = make({"arms": joint})
    of_all, known = executed(whole), {}
    for arm in LEFT_OUT:
        rest = make({"arms": {name: one for name, one in joint.items() if name != arm}})
        known[arm] = alone(whole, arm)
        assert of_all - executed(rest) == +known[arm], arm
    kinds = {kind for counts in known.values() for kind, n in counts.items() if n}
    assert kinds == {"requests", "searches", "pairs"}  # each of these kinds has been seen
    assert not any(known["shared"].values())
    needs = arm_needs(whole.counts, [*joint, "original", "full"])
    assert not needs["original"].alone
    for arm in needs:
        components = {need.component for need in needs[arm].whole}
        priced = {component for stage in QUANTITIES.values() for component in whole.spent.get(stage, {})}
        assert components <= priced, arm
