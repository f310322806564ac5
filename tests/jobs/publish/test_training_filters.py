"""With `retrieve.filters` one text is several queries: they are held out together, and their equal rows are one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.runs.folder import open_run
from jobs.verbs.publishing import ExportArguments
from jobs.verbs.publishing import exported as export
from retrievers.local.build import build_local_index
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.retrievers.blocks import index_fields

WORDS = "lamp bread yeast moon tides sea lens wick linen rye beer mirror galaxies keeper harbours cousins"
SHOPS = ("north", "south", "east")
HOLDOUT = 30


def is_held(query: str) -> bool:
    digest = hashlib.sha256(f"\n{query_id(query)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < HOLDOUT


@pytest.mark.parametrize("column", ["shop", "query_id"])
def test_queries_that_differ_in_filters_alone_are_one(
    tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = WORDS.split()
    asked = [f"{one} {other}" for one, other in zip(words, words[3:], strict=False)]
    shops = [shop for shop in SHOPS for _ in asked]
    forms = [query.upper() if shop == "south" else query for shop in SHOPS for query in asked]  # of one normal form
    pq.write_table(pa.table({"query": forms, column: shops}), "log.parquet")
    pq.write_table(pa.table({"doc_id": [*SHOPS], "text": [WORDS] * 3, "tenant": [*SHOPS]}), "corpus.parquet")
    build_local_index(tmp_path / "index", "corpus.parquet", index_fields("english"))
    answers = {query: {"general": f"what of {query}", "keyword": f"x, {query}"} for query in asked}
    lines = [{"query": query, "completions": {"dmqr": json.dumps(of)}} for query, of in answers.items()]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bm25 = {"kind": "local", "index": str(tmp_path / "index"), "analyzer": "english", "encoder": None}
    values["rewrite"] |= {"strategies": ["keyword", "general"]}
    values |= {"retrieve": {"retrievers": {"bm25": bm25}, "filters": {"tenant": column}}, "rerank": {"kind": "none"}}
    values |= {"limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 5}}
    run = open_run(str(run_in_process(prepared_job(config_file(values)))))
    given = {"to": str(tmp_path / "to"), "formats": ["chat"]}
    record = export(run, ExportArguments(given, "v", options={"holdout": HOLDOUT})).record
    files = {one["format"] + Path(one["name"]).suffix: tmp_path / "to" / "v" / one["key"] for one in record.files}
    held, counts = pq.read_table(files["chat.parquet"]).to_pylist(), record.formats["chat"]
    name = "filter query_id" if column == "query_id" else column
    assert {(row["query"].lower(), row[name]) for row in held} == {(q, shop) for q in asked if is_held(q) for shop in SHOPS}
    rows = [json.loads(line)["messages"] for line in files["chat.jsonl"].read_text().splitlines()]
    left = [query for query in asked if not is_held(query)]
    assert counts["held_out"] == len(held) == 3 * (len(asked) - len(left)) > 0
    # the answers of the three shops are equal: a row for each of the two strategies is left
    assert sorted(answer["content"] for _, answer in rows) == sorted(
        text for query in left for text in (f"what of {query}", f"x, {query}")
    )
    assert (counts["rows"], counts["equal"]) == (2 * len(left), 4 * len(left))


def test_rows_are_asked_by_the_prompts_of_the_night(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that was edited since asks for other answers than those of the night; one of nobody's night is another version."""
    monkeypatch.chdir(tmp_path)
    form = "label: L\ndefinition: d\nusage: u\nexample: e\nprompt: |-\n  {} of this\n\n  {{query}}\n"
    for name in ("own", "other"):
        Path(f"{name}.yaml").write_text(form.format(name))
    asked = ["lamp of a lighthouse", "moon and tides"]
    pq.write_table(pa.table({"query": asked}), "log.parquet")
    lines = [{"query": query, "completions": {"own": f"what of {query}"}} for query in asked]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"] |= {"strategies": ["./own.yaml"]}
    values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "cluster": {"address": "none"}}
    run = open_run(str(run_in_process(prepared_job(config_file(values)))))

    def chat(version: str, prompt_of: str | None = None) -> tuple[bool, set[str]]:
        options = {"holdout": 0, "prompt_of": prompt_of}
        done = export(run, ExportArguments({"to": str(tmp_path / "to"), "formats": ["chat"]}, version, options=options))
        (key,) = (one["key"] for one in done.record.files if one["name"] == "chat.jsonl")
        rows = [json.loads(line)["messages"] for line in Path(done.place, key).read_text().splitlines()]
        assert sorted(row[1]["content"] for row in rows) == [f"what of {query}" for query in asked]
        return done.existed, {row[0]["content"].splitlines()[0] for row in rows}

    assert chat("v") == (False, {"own of this"})
    assert chat("w", "./other.yaml") == (False, {"other of this"})
    assert chat("w", "./other.yaml") == (True, {"other of this"})
    Path("other.yaml").write_text(form.format("another"))
    with pytest.raises(ConfigError, match=r"/w: asks by prompts that are others now, .*; give another --version") as error:
        chat("w", "./other.yaml")
    assert error.value.code == "publish-version"
    assert chat("x", "./other.yaml") == (False, {"another of this"})
    Path("own.yaml").write_text(form.format("edited"))
    for version, prompt_of in (("v", None), ("y", None), ("y", "own"), ("y", "rewrite")):
        with pytest.raises(ConfigError, match=r": strategy 'own' has another prompt now than the run asked by") as error:
            chat(version, prompt_of)
        assert error.value.code == "publish-run"
    Path("own.yaml").write_text(form.format("own"))
    assert chat("v") == (True, {"own of this"})
