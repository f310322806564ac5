"""Guards in a whole run, in one process: what its report counts, what is searched, and the run's name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.pages.run import report
from jobs.pages.summary import guard_words
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import finished, prepared_job, record
from tests.support.jobs.whole_runs import rows

ANSWERS = {
    "rye bread in a linen bag": {
        "general": "Rye bread in a linen bag?", "keyword": "rye bread, linen", "core_content": "rye bread",
        "pseudo_answer": "Rye bread keeps for a week in a linen bag, as the baker at the corner says.",
    },
    "who is keeper@example.org": {
        "general": "who is <MAIL_1>", "keyword": "<MAIL_1>, lighthouse", "core_content": "<MAIL_1>",
        "pseudo_answer": "<MAIL_1> is that a keeper trimmed the wick of the lighthouse lamp every four hours.",
    },
    "spring tides": {name: f"{name} of tides" for name in ("general", "keyword", "core_content", "pseudo_answer")},
}  # fmt: skip
GUARDS = {"near_duplicates": "drop", "mask": ["mail"]}


@pytest.fixture
def job(small_job: Callable[..., str]) -> Callable[..., str]:
    """Writes a config with guards; its path."""
    Path("answers.tsv").write_text("a\ta week\na\tseven days\nb\tnobody\n")

    def write(**guards: Any) -> str:
        rewrite = {"guards": guards, "strategies": list(ANSWERS["spring tides"])}
        path = small_job(rewrite=rewrite, log={"id_column": "id"}, evaluate={"answers": "answers.tsv"})
        pq.write_table(pa.table({"id": ["a", "b", "c"], "query": list(ANSWERS)}), "log.parquet")
        record({query: {"dmqr": json.dumps(texts)} for query, texts in ANSWERS.items()})
        return path

    return write


def run(config: str, *settings: str) -> RunFolder:
    return finished(prepared_job(config, *settings))


def test_the_report_has_the_counts(job: Callable[..., str]) -> None:
    page = report(run(job(**GUARDS)), None)
    assert "near_duplicate 2 left out" in page
    Path("answers.tsv").write_text("a week\n")
    with pytest.raises(ConfigError, match=r"evaluate\.answers: answers\.tsv: line 1 is not 'log_id<TAB>answer'"):
        run(job(**GUARDS), "label=other")


def test_guards_that_only_count_leave_name_and_texts_as_they_were(job: Callable[..., str]) -> None:
    def name(**guards: Any) -> str:
        return prepare(load_config(job(**guards)), "config.yaml").run_id

    assert name(preserve="count") == name(drift=0.15) == name()
    assert len({name(), name(preserve="drop"), name(mask=["card"]), name(**GUARDS)}) == 4


@pytest.mark.parametrize("together", [False, True])
def test_texts_that_drift_are_counted_and_searched_all_the_same(
    small_job: Callable[..., str], served_dense: dict[str, Any], together: bool
) -> None:
    retrievers = {"dense": served_dense | {"together": together}}
    config = small_job(rewrite={"guards": {"drift": 0.35}}, retrieve={"retrievers": retrievers})
    texts = {"lamp of a lighthouse": "something else entirely", "yeast": "yeast of beer"}
    record({query: {"dmqr": json.dumps({"general": text})} for query, text in texts.items()})
    counted, plain = run(config), run(config, "rewrite.guards.drift=null", "label=plain")
    assert {key: n for key, n in counted.counts.items() if key.endswith("drift")} == {"guard/general/drift": 1}
    assert "drift 1" in guard_words(counted)
    assert not [key for key in plain.counts if key.endswith("drift")]
    for table in ("runs", "results"):
        searched = [sorted(map(repr, rows(Path(one.storage.root), table))) for one in (counted, plain)]
        assert searched[0] == searched[1]
