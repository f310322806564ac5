"""An export writes rules and synonyms of a run beside its rows, and counts what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.runs.folder import RunFolder, open_run
from jobs.verbs.publishing import ExportArguments
from jobs.verbs.publishing import exported as export
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.querqy_grammar import read_rules

LONG = ["a", "laptop", "that", "does", "not", "cost", "very", "much"]
NIGHT = {
    "Notebook  cheap": (9, " ".join(LONG), "affordable laptop"),
    "a:b": (2, "letters of the alphabet", "a, b => c"),
    "-dogs": (3, "cats", "cats alone"),
    "lamp": (5, "lamp", "LAMP"),
}
"""Query -> how often it is asked, and its rewrites."""


@pytest.fixture
def night(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    turns = {"query": "lamp", "turns": "who kept the lighthouse?"}
    rows = [{"query": query, "turns": None} for query, (asked, *_) in NIGHT.items() for _ in range(asked)]
    pq.write_table(
        pa.Table.from_pylist([*rows, turns], pa.schema([("query", pa.string()), ("turns", pa.string())])), "log.parquet"
    )
    completions = [
        {"query": query, "completions": {"dmqr": json.dumps({"general": general, "keyword": keyword})}}
        for query, (_, general, keyword) in NIGHT.items()
    ]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in completions))
    values["rewrite"] |= {"strategies": ["general", "keyword"]}
    values["retrieve"] = {"retrievers": {"bm25": bm25}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none"}}
    values["log"] |= {"context_column": "turns"}
    return open_run(str(run_in_process(prepared_job(config_file(values), "label=night"))))


def test_rules_and_synonyms_of_a_run(night: RunFolder, tmp_path: Path) -> None:
    given = {"to": str(tmp_path / "out"), "formats": ["rows", "synonyms", "querqy"]}
    done = export(night, ExportArguments(given, "v", options={"synonym_rules": 2}))
    record = json.loads((tmp_path / "out" / "v" / "export.json").read_text())
    places = {one["name"]: tmp_path / "out" / "v" / one["key"] for one in record["files"]}
    assert set(places) == {"rows.parquet", "rows.jsonl", "querqy_rules.txt", "synonyms.txt", "synonyms.json"}
    lines = ["notebook cheap => notebook cheap, affordable laptop", "-dogs => -dogs, cats, cats alone"]
    assert places["synonyms.txt"].read_text() == "".join(f"{line}\n" for line in lines)
    body = [{"id": query_id(line.partition(" =>")[0]), "synonyms": line} for line in lines]
    assert json.loads(places["synonyms.json"].read_text()) == {"synonyms_set": body}
    (rule,) = read_rules(places["querqy_rules.txt"].read_text())
    assert (rule.words, rule.properties) == (["notebook", "cheap"], {"_id": query_id("notebook cheap")})
    expected = [("SYNONYM", "affordable", "laptop"), *(("UP", word) for word in LONG)]
    assert [(one.kind, *one.words) for one in rule.instructions] == expected
    counts = record["formats"]
    assert {name: n for name, n in counts["querqy"].items() if n} == {
        "rules": 1, "synonyms": 1, "boosts": 8, "left_out_context_or_filters": 1, "left_out_grammar": 1, "left_out_operator": 1,
        "left_out_no_rewrites": 1, "rewrites_as_the_query": 2,
    }  # fmt: skip
    assert {name: n for name, n in counts["synonyms"].items() if n} == {
        "rules": 2, "synonyms": 3, "traffic": 12, "left_out_context_or_filters": 1, "left_out_no_rewrites": 1,
        "left_out_asked_less": 1, "rewrites_too_long": 1, "rewrites_as_the_query": 2,
    }  # fmt: skip
    assert record["choices"]["formats"]["synonyms"] == {"synonym_rules": 2}
    assert done.record.formats == counts


def test_an_option_of_no_format_is_refused(night: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^--synonym-rules: is of no format that --as names; leave it out, or name its format"
    ):
        export(night, ExportArguments({"to": str(tmp_path / "out")}, "v", options={"synonym_rules": 2}))
