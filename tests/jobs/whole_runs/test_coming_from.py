"""Every line of ours in docs/coming-from.md is loaded, and its configs are run: their figures are those of the other libraries.

What the others compute is computed here apart, by their published formulas.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.cli.command_line.arguments import parser
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.pages.closing import compared
from jobs.run.ablation import prepare_ablation
from jobs.run.job import run_of
from jobs.runs.folder import open_run
from rewriters.pool import load
from rewriters.strategy import Strategy
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import ROOT, rows

PAGE = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
CONFIG_KEYS = (ROOT / "docs/config.md").read_text(encoding="utf-8")
BLOCKS = {
    title.split(":")[0]: yaml.safe_load(block)
    for title, block in re.findall(r"^## ([^\n]*)$(?:(?!^## ).)*?^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}
# Of the right columns: what stands between backticks.
CODE = sorted(
    {
        code
        for row in re.findall(r"^\|(?! here)(.*)\|$", PAGE, re.MULTILINE)
        for code in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])
    }
)
SETTINGS = [code for code in CODE if re.match(r"[a-z_]+(\.[a-z_0-9]+)*: ", code) and not code.startswith("output:")]
COMMANDS = [code for code in CODE if code.startswith("dmqr ")]
KEYS = [code for code in CODE if re.fullmatch(r"(cluster|log|rewrite|retrieve|fuse|rerank)\.[a-z_.]+", code)]
QUERIES = {"1": "why does bread rise", "2": "lamp of a lighthouse", "3": "moon and tides"}
ANSWERS = {
    "multi_query": "1. how can bread and tides rise\n2. leavening by yeast\n3. full moon over the sea",
    "rag_fusion": "1. yeast of bread\n2. lens and light of a lamp\n3. new moon and full moon",
    "query2doc": "Yeast makes gas, and the moon pulls the sea.",
}
Run = Callable[..., tuple[Path, Any]]


@pytest.fixture
def job(tmp_path: Path, bm25: dict[str, Any], served_dense: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a block of the page over three queries with recorded answers; the folder, and what was prepared."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"qid": list(QUERIES), "query": list(QUERIES.values())}), "log.parquet")
    recorded = [{"query": query, "completions": ANSWERS} for query in QUERIES.values()]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in recorded))
    Path("qrels.txt").write_text("1 0 d03 1\n1 0 d05 1\n2 0 d02 1\n3 0 d07 2\n3 0 d06 1\n")

    def ran(block: dict[str, Any], *settings: str) -> tuple[Path, Any]:
        values = {"name": "mine", "log": {"path": "log.parquet", "query_column": "query", "id_column": "qid"}, "output": "runs"}
        values |= json.loads(json.dumps(block))
        if "engine" in values["rewrite"]:
            values["rewrite"]["engine"] = {"kind": "recorded", "path": "recorded.jsonl"}
        for name in values["retrieve"]["retrievers"]:
            values["retrieve"]["retrievers"][name] = {"bm25": bm25, "dense": served_dense}[name]
        values["cluster"] = {"address": "none"}
        Path("mine.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        config = load_config("mine.yaml", list(settings))
        work = prepare_ablation(config, "mine.yaml") if "ablate" in values else run_of(prepare(config, "mine.yaml"))
        return run_in_process(work), work.prepared

    return ran


Ranked = list[tuple[str, float]]


def lists(folder: Path) -> dict[str, dict[tuple[str, int, str], Ranked]]:
    """Returns the query -> (strategy, position, retriever) -> the hits, best first."""
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    found: dict[str, dict[tuple[str, int, str], Ranked]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows(folder, "runs"), key=lambda row: row["rank"]):
        key = row["strategy"], row["position"], row["retriever"]
        found[words[row["query_id"]]][key].append((row["doc_id"], row["score"]))
    return found


def results(folder: Path, arm: str | None = None) -> dict[str, Ranked]:
    """Returns the query -> its results, best first."""
    words = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    found: dict[str, Ranked] = defaultdict(list)
    for row in sorted(rows(folder, "results"), key=lambda row: row["rank"]):
        if arm in (None, row["arm"]):
            found[words[row["query_id"]]].append((row["doc_id"], row["score"]))
    return found


def best(scores: dict[str, float], most: int) -> Ranked:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:most]


def close(ranked: Ranked) -> list[tuple[str, Any]]:
    return [(doc_id, pytest.approx(score, abs=1e-6)) for doc_id, score in ranked]


# ---------------------------------------------------------------- every line


def test_there_are_lines_of_each_kind() -> None:
    assert list(BLOCKS) == ["LangChain", "LlamaIndex", "PyTerrier", "QueryGym"]
    assert (len(SETTINGS) > 35, len(COMMANDS) >= 3, len(KEYS) >= 2) == (True, True, True)


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_is_one(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken beside a config with two retrievers, and changes it or says the default."""
    retrievers = {"bm25": {"kind": "local", "index": "i"}, "dense": {"kind": "local", "index": "i", "encoder": {"model": "m"}}}
    values = {
        "name": "mine", "log": {"path": "log.parquet", "query_column": "query"}, "output": "runs",
        "rewrite": {"engine": {"kind": "recorded", "path": "r.jsonl"}}, "retrieve": {"retrievers": retrievers},
        "rerank": {"kind": "cross_encoder", "model": "m"},
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    monkeypatch.chdir(tmp_path)
    key, _, value = setting.partition(": ")
    config = load_config(str(path), [f"{key}={value}"])
    for entry in config.rewrite.strategies:
        load(entry)
    found: Any = config.model_dump(mode="json")
    for part in key.split("."):
        found = found[part]
    wanted = yaml.safe_load(value)
    assert found == wanted or isinstance(wanted, dict | list) or isinstance(found, dict), found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_typed(command: str) -> None:
    words = shlex.split(command)[1:]
    if len(words) > 1:  # a verb alone only names it
        parser().parse_args(words)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_one(key: str) -> None:
    section, _, name = key.rpartition(".")
    assert re.search(rf"^## `{section}`.*?^\| `{name}`", CONFIG_KEYS, re.MULTILINE | re.DOTALL), key


def test_a_strategy_of_ones_own_may_have_lines() -> None:
    assert "output: lines" in CODE
    assert Strategy.model_validate(load("multi_query").model_dump()).output == "lines"


# ---------------------------------------------------------------- the longer ones


def test_langchain_s_union_is_what_the_three_versions_find(job: Run) -> None:
    folder, _ = job(BLOCKS["LangChain"])
    of, found = lists(folder), results(folder)
    for query in QUERIES.values():
        versions = [hits for (strategy, _, _), hits in of[query].items() if strategy == "multi_query"]
        assert len(versions) == 3
        assert all(len(hits) <= 4 for hits in of[query].values())
        assert {doc_id for doc_id, _ in found[query]} == {doc_id for hits in versions for doc_id, _ in hits}
    assert {source["strategy"] for row in rows(folder, "results") for source in row["sources"]} == {"multi_query"}


def test_llamaindex_s_reciprocal_ranks_are_ours(job: Run) -> None:
    folder, _ = job(BLOCKS["LlamaIndex"])
    of, found = lists(folder), results(folder)
    for query in QUERIES.values():
        assert len(of[query]) == 8  # the original and three queries, two retrievers
        scores: dict[str, float] = defaultdict(float)
        for hits in of[query].values():
            for rank, (doc_id, _) in enumerate(hits):  # from 0
                scores[doc_id] += 1 / (rank + 60)
        assert found[query] == close(best(scores, 5))


def test_llamaindex_s_relative_scores_are_ours(job: Run) -> None:
    weights = {"bm25": 0.4, "dense": 0.6}
    settings = f"fuse={{method: minmax, redundancy: none, depth: 10, keep: 5, retriever_weights: {json.dumps(weights)}}}"
    folder, _ = job(BLOCKS["LlamaIndex"], settings)
    of, found = lists(folder), results(folder)
    for query in QUERIES.values():
        scores: dict[str, float] = defaultdict(float)
        for (_, _, retriever), hits in of[query].items():
            low, high = min(score for _, score in hits), max(score for _, score in hits)
            for doc_id, score in hits:
                scores[doc_id] += weights[retriever] * ((score - low) / (high - low) if high > low else 1.0)
        assert found[query] == close(best(scores, 5))


def test_pyterrier_s_experiment_has_our_means(job: Run) -> None:
    folder, prepared = job(BLOCKS["PyTerrier"])
    found = compared(open_run(str(folder)), prepared.judgements, prepared.config.evaluate, None).comparison
    assert found is not None
    assert found.baseline == "bm25"
    qrels = list(ir_measures.read_trec_qrels("qrels.txt"))
    ids = {query: qid for qid, query in QUERIES.items()}
    for arm in ("bm25", "dense", "full"):
        run = [
            ir_measures.ScoredDoc(ids[query], doc_id, -rank)
            for query, ranked in results(folder, arm).items()
            for rank, (doc_id, _) in enumerate(ranked)
        ]
        means = ir_measures.calc_aggregate([ir_measures.nDCG @ 10, ir_measures.RR], qrels, run)
        place = found.frame.arms.index(arm)
        ours = [float(values.mean()) for values in found.frame.values[place]]
        assert ours == pytest.approx([means[ir_measures.nDCG @ 10], means[ir_measures.RR]])


def test_querygym_s_text_has_the_query_five_times_and_stands_in_its_place(job: Run) -> None:
    folder, _ = job(BLOCKS["QueryGym"])
    made = {row["query_id"]: row["text"] for row in rows(folder, "rewrites")}
    asked = {row["query_id"]: row["query"] for row in rows(folder, "queries")}
    assert made == {key: " ".join([query] * 5 + [ANSWERS["query2doc"]]) for key, query in asked.items()}
    assert {source["strategy"] for row in rows(folder, "results") for source in row["sources"]} == {
        "query2doc(include_original=5,temperature=0.7)"
    }
