"""`dmqr runs`: what a list says of each run, in which order, and what it costs to ask."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.run.shards import SUCCESS, Plan, put_plan
from cluster.storage import Storage, open_storage
from jobs.__main__ import main
from jobs.config.config import Config
from jobs.measure.evaluate import EVALUATION, Evaluation, store_evaluation
from jobs.measure.run_list import ListedRun, list_runs, measured
from tests.support.jobs.run_folders import PRICES, RunMaker, frame_of

FINGERPRINT = "0123456789ab"
COSTS = {"rewrite": {"dmqr@writer": {"seconds": 10.0, "prompt_tokens": 1000.0, "completion_tokens": 100.0}}}
Values = dict[str, Any]


class Nights:
    """Makes the folders of runs as their drivers leave them."""

    def __init__(self, output: Path | str, values: Values) -> None:
        self.output: Storage = open_storage(str(output))
        self.values = values

    def __call__(self, date: str | None = None, *, began: str = "2026-02-01T02:15:00Z", **more: Any) -> Storage:
        """A finished run of 100 queries."""
        label, name, fingerprint = more.get("label"), more.get("name", "night"), more.get("fingerprint", FINGERPRINT)
        values = self.values | {"name": name, "label": label, "log": self.values["log"] | {"date": date}}
        config = Config.model_validate(values)
        folder = "-".join(part for part in (name, config.shown_label, fingerprint) if part)
        storage = open_storage(self.output.url(folder))
        put_plan(storage, Plan([], {"queries": 100, "log_rows": 120, "rejected": 0}, 50, {}, []))
        record = {
            "run_id": folder, "status": more.get("status", "finished"), "config": config.model_dump(), "costs": COSTS,
            "identity": {"config": {"log": date, "fuse": more.get("fuse", {})}, "indexes": {}},
            "starts": [{"start": 1, "began": began}], "counts": {"committed": {"queries": 100, "failed_queries": 2}},
        }  # fmt: skip
        storage.put("run.json", json.dumps(record).encode())
        if record["status"] == "finished":
            storage.put(SUCCESS, b"{}")
        if (results := more.get("results")) is not None:
            store_evaluation(storage, Evaluation(frame_of([[results] * 3, [0.5] * 3]), config).values())
        return storage

    def listed(self, name: str | None = "night") -> list[ListedRun]:
        return list_runs(self.output, name, lambda record: PRICES)


@pytest.fixture
def nights(tmp_path: Path, values: Values) -> Nights:
    return Nights(tmp_path / "runs", values)


@pytest.fixture
def runs(capfd: pytest.CaptureFixture[str]) -> Callable[..., list[list[str]]]:
    """The cells that `dmqr runs` prints."""

    def shown(*arguments: str) -> list[list[str]]:
        assert main(["runs", *arguments]) == 0
        return [line.split() for line in capfd.readouterr().out.splitlines()]

    return shown


# ---------------------------------------------------------------- the list


def test_the_newest_night_is_the_last_whenever_it_was_started(nights: Nights) -> None:
    nights("2026-01-31", began="2026-02-01T02:00:00Z")
    nights("2026-01-30", began="2026-02-02T02:00:00Z")  # made up for later
    nights("2026-01-31", label="again", began="2026-02-01T09:00:00Z")
    nights(began="2026-01-15T02:00:00Z")
    found = [(run["label"], run["date"]) for run in nights.listed()]
    assert found == [(None, None), (None, "2026-01-30"), (None, "2026-01-31"), ("again", "2026-01-31")]


def test_what_is_said_of_a_finished_run(nights: Nights) -> None:
    nights("2026-01-31", results=0.75)
    (run,) = nights.listed()
    assert (run["state"], run["queries"], run["failed"], run["date"], run["label"]) == ("finished", 100, 2, "2026-01-31", None)
    assert (measured(run, "results"), measured(run, "original"), measured(run, "difference")) == (0.75, 0.5, 0.25)
    usd = PRICES.usd(COSTS)
    assert usd > 0
    assert run["usd"] == usd


def test_a_run_of_which_nothing_is_there_but_its_record(nights: Nights) -> None:
    nights.output.put(f"night-{FINGERPRINT}/run.json", b'{"starts": [{"start": 1, "began": "2026-01-31T00:00:00Z"}]}')
    nights.output.put(f"night-x-{FINGERPRINT}/run.json", b"cut o")
    (run,) = nights.listed()
    assert (run["date"], run["queries"], run["evaluation"]) == (None, 0, None)


def test_a_damaged_evaluation_is_none(nights: Nights) -> None:
    nights("2026-01-31").put(EVALUATION, b"{")
    assert nights.listed()[0]["evaluation"] is None


def test_what_was_measured_before_the_end_is_no_quality_of_a_finished_run(tmp_path: Path) -> None:
    """The queries of an unfinished run are the most frequent; its config names no judgements, so that the end measures none."""
    maker = RunMaker(tmp_path / "runs")
    run = maker(commit=1, finished=False)
    (tmp_path / "qrels.tsv").write_text("alpha lighthouse\td01\t1\nbravo bread\td03\t1\n")
    report = ["report", run.storage.root, "--qrels", str(tmp_path / "qrels.tsv"), "--key", "query"]

    def listed() -> ListedRun:
        (one,) = list_runs(open_storage(str(tmp_path / "runs")), "small", lambda record: None)
        return one

    assert main(report) == 0
    half = listed()
    assert (half["state"], measured(half, "results")) == ("running", 1.0)
    assert half["evaluation"] is not None
    assert (half["evaluation"]["finished"], half["evaluation"]["not_committed"]) == (False, 1)
    maker.storage.put(SUCCESS, b"{}")
    assert (listed()["state"], listed()["evaluation"]) == ("finished", None)
    assert main(report) == 0
    assert measured(listed(), "results") == 1.0


# ---------------------------------------------------------------- the verb


def test_the_runs_of_a_config_are_those_of_its_name(
    nights: Nights, runs: Callable[..., list[list[str]]], config_file: Callable[[Any], str], tmp_path: Path
) -> None:
    nights("2026-01-31", results=0.75)
    nights("2026-01-30", name="another")
    config = config_file(nights.values | {"name": "night", "output": str(tmp_path / "runs")})
    Path(config).with_name("prices.yaml").write_text("cpu_worker_hour: 3600\n")
    head, night, begun = runs(config)
    assert head == ["run,", "begun", "(UTC),", "state", "queries", "failed", "nDCG@10", "original", "cost"]
    assert " ".join(night + begun) == f"night-2026-01-31-{FINGERPRINT} 100 2 0.7500 0.5000 $10.00 2026-02-01 02:15 finished"


def test_the_page(nights: Nights, tmp_path: Path, runs: Callable[..., list[list[str]]]) -> None:
    nights("2026-01-30", results=0.7)
    nights("2026-01-31")
    runs(nights.output.root, "--out", str(tmp_path / "list.html"))
    html = (tmp_path / "list.html").read_text()
    assert "2 of 2 runs are finished" in html
    assert html.index(f"night-2026-01-30-{FINGERPRINT}") < html.index(f"night-2026-01-31-{FINGERPRINT}")
    assert "0.7000" in html
