"""What an ablation of a UBI log says of its strategies by what was clicked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from tests.support.jobs.ubi_exports import event, search, write_lines

CLICKED = {"moon and tides": ["d06"], "yeast of bread": ["d05", "nowhere"], "lamp of a lighthouse": []}


@pytest.fixture
def job(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.chdir(tmp_path)
    searches = [search(f"q{n}", text) for n, text in enumerate(CLICKED)]
    events = [event(f"q{n}", document) for n, documents in enumerate(CLICKED.values()) for document in documents]
    write_lines(tmp_path / "log" / "ubi_queries.ndjson", searches)
    write_lines(tmp_path / "log" / "ubi_events.ndjson", events)
    lines = [{"query": text, "completions": {"dmqr": json.dumps({"general": "zzz"})}} for text in CLICKED]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["log"] = {"path": "log", "format": "ubi"}
    values["rewrite"] |= {"engine": {"kind": "recorded", "path": "recorded.jsonl"}, "strategies": ["general"]}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none"}, "limits": {"error_rate": 1}}
    return config_file(values)


def test_an_ablation_has_the_click_hit_rate_of_its_strategies(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", job, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {one["strategy"]: one["click_rate"] for one in found["worth"]} == {"original": (1 + 1 / 2) / 2, "general": 0}
    assert found["no_clicks"] is None
    page = (Path(found["folder"]) / "report.html").read_text()
    assert "click hit rate</th>" in page
    assert '<td data-v="0.75">75.0 %</td>' in page


def test_where_the_events_are_gone_it_says_so(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("log/ubi_events.ndjson").unlink()
    assert main(["ablate", job]) == 0
    printed = capfd.readouterr().out
    assert "clicks" in printed
    page = next(Path().glob("**/report.html")).read_text()
    assert "click hit rate</th>" not in page
    assert "No click hit rate: log.path log: no ubi_events* in this folder" in page


def test_where_no_query_has_a_click_it_says_so(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    write_lines(Path("log/ubi_events.ndjson"), [event("q0", "d06", action="purchase"), event("yesterday", "d06")])
    assert main(["ablate", job, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["no_clicks"] == "no query of the ablation has a click in the log's events"
