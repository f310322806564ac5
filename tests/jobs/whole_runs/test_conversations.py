"""A log of conversations with columns of its own: as a run in this process, as a query that is tried, as it is judged."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import evaluate
from jobs.runs.folder import open_run
from jobs.try_one.outcome import Trial, trial_values
from jobs.try_one.trial import LoadedConfig
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import record

LOG = [  # query, turns, market
    ("how does it work", ["a lighthouse lamp"], "is"),
    ("How does it work", ["a lighthouse", "lamp"], "de"),
    ("how does it work", ["A  lighthouse", "lamp"], "de"),
    ("how does it work", None, None),
    ("bread", [], "de"),
]


@pytest.fixture
def job(small_job: Callable[..., str]) -> str:
    """The path of a config; its log is there."""
    path = small_job(
        log={"context_column": "turns"},
        rewrite={"strategies": ["general", "keyword", "./local.yaml"]},
        cluster={"shard_size": 2},
    )
    said = pa.array([turns for _, turns, _ in LOG], pa.list_(pa.string()))
    pq.write_table(
        pa.table({"query": [query for query, *_ in LOG], "turns": said, "market": [market for *_, market in LOG]}),
        "log.parquet",
    )
    answer = {name: f"{name} of a lamp" for name in ("general", "keyword")}
    prompt = "Rewrite the query for the market {market}.\n\nQuery: {query}"
    Path("local.yaml").write_text(yaml.safe_dump({"label": "Local", "prompt": prompt}))
    record({"how does it work": {"dmqr": json.dumps(answer), "local": "lamp of a lighthouse"}})
    return path


def tried(path: str, query: str, context: str, values: dict[str, str]) -> Trial:
    with LoadedConfig(load_config(path), path, "small", context, values) as loaded:
        return loaded.try_query(query, lambda words: None)


@pytest.mark.slow
def test_a_judged_text_is_the_query_without_earlier_turns(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job]) == 0
    run = open_run(capfd.readouterr().out.splitlines()[-1])
    grades = {"how does it work": {"d01": 1}, "bread": {"d03": 1}}
    found = evaluate(run, Judgements("", grades, "query"))
    assert (found.frame.judged, found.frame.missing, found.frame.distinct) == (2, 0, 2)
    wanted = {one: {"d01": 1} for one in (query_id("how does it work"), query_id("bread"))}
    alone = evaluate(run, Judgements("", {one: grades[text] for one, text in zip(wanted, grades, strict=True)}, "query_id"))
    assert found.pairs == alone.pairs


# ---------------------------------------------------------------- try


def test_a_query_is_tried_after_turns_and_with_values(job: str) -> None:
    trial = tried(job, "How does it work", "a lighthouse\nlamp", {"market": "de"})
    assert trial.row["query_id"] == query_id("how does it work", "a lighthouse lamp")
    shown = trial_values(trial)
    assert (shown["context"], shown["values"]) == ("a lighthouse\nlamp", {"market": "de"})
    assert {rewrite["strategy"] for rewrite in trial.row["rewrites"]} == {"general", "keyword", "local"}
    (request,) = [one for one in trial.requests if one["request"] == "local"]
    assert "for the market de." in request["prompt"]
    assert "a lighthouse\nlamp" in request["prompt"]


def test_blank_turns_are_none_and_a_value_that_is_not_given_is_null(job: str) -> None:
    trial = tried(job, "how does it work", " \n", {})
    assert trial.row["query_id"] == query_id("how does it work")
    assert (trial.row["context"], trial.row["values"]) == (None, {"market": None})


def test_the_command_takes_them_and_shows_them(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["--context", "a lighthouse\nlamp", "--value", "market=a=b"]
    assert main(["try", job, "how does it work", *given]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == ["how does it work", "context: a lighthouse lamp", "market: a=b"]
    assert main(["try", job, "how does it work", *given, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["values"] == {"market": "a=b"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "log.context_column=null", "--context", "a"], "--context: {path} names no log.context_column; set it, or"),
        (["--value", "markt=de"], "--value markt: no prompt or selection of {path} uses it; did you mean 'market'?"),
        (
            ["--set", "rewrite.strategies=[general]", "--value", "market=de"],
            "--value market: no prompt or selection of {path} uses it; leave it out",
        ),
        (["--value", "market"], "--value market: is not NAME=TEXT; write it as --value "),
        (["--value", "market=de", "--value", "market=is"], "--value market: is given twice"),
        (["--context", "caf\udce9"], "--context: is not UTF-8; give it in a terminal that is"),
    ],
)
def test_what_the_log_does_not_have_is_refused(
    job: str, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["try", job, "bread", *arguments]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"dmqr try: {words.format(path=job)}")
