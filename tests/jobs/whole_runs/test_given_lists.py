"""Lists that another system made, as a retriever and as an arm: measured as trec_eval measures the file."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval

from cluster.errors import RetrieverError
from cluster.run.shards import SUCCESS
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.given_lists import with_given_lists
from retrievers.trec.settings import TrecSettings
from tests.support.jobs.field_sets import DOCUMENTS, QRELS, QUERIES, lines, write_beir
from tests.support.jobs.whole_runs import rows

TOPICS = ("q1", "q2", "q5")  # q4 is in the log and not in the file, q5 in the file and not in the log
MEASURES = {"nDCG@3": "ndcg_cut_3", "RR": "recip_rank", "P@5": "P_5"}
Write = Callable[..., str]


def write_run(path: Path, seed: int = 7) -> dict[str, dict[str, float]]:
    """A run with ties, in no order, whose ranks say something else."""
    draw = random.Random(seed)
    found = {topic: {doc_id: float(draw.randint(1, 3)) for doc_id in DOCUMENTS} for topic in TOPICS}
    rows_of = [(topic, doc_id, score) for topic, of in found.items() for doc_id, score in of.items()]
    draw.shuffle(rows_of)
    path.write_text("".join(f"{topic} Q0 {doc_id} {n} {score} other\n" for n, (topic, doc_id, score) in enumerate(rows_of, 1)))
    return found


def by_trec_eval(run: dict[str, dict[str, float]]) -> dict[str, float]:
    """Means over the judged queries of the split; one without a list counts zero."""
    judged = QRELS["test"]
    found = pytrec_eval.RelevanceEvaluator(judged, set(MEASURES.values())).evaluate(run)
    return {shown: sum(found.get(key, {}).get(name, 0.0) for key in judged) / len(judged) for shown, name in MEASURES.items()}


@pytest.fixture
def config(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a config over the split test of the small set, with BM25 and what is given."""
    monkeypatch.chdir(tmp_path)
    write_beir(tmp_path / "small")
    answers = [{"query": text, "completions": {"dmqr": json.dumps({"general": f"about {text}"})}} for text in QUERIES.values()]
    lines(tmp_path / "recorded.jsonl", answers)

    def write(**parts: Any) -> str:
        values["rewrite"]["strategies"] = ["general"]
        bm25 = {"kind": "local", "index": "index", "analyzer": "english"}
        found = values | {"rerank": {"kind": "none"}, "retrieve": {"retrievers": {"bm25": bm25}}}
        found |= {"log": {"path": "beir:small"}, "corpus": {"path": "beir:small"}, "limits": {"error_rate": 1}}
        found |= {"evaluate": {"qrels": "beir:small", "measures": list(MEASURES)}}
        return config_file(found | {"cluster": {"address": "none", "shard_size": 2}} | parts)

    return write


def done(*words: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    code, out = main([*words]), capfd.readouterr()
    assert code == 0, out.err
    return out.out, out.err


def means(ablation: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {arm["arm"]: {name: one["mean"] for name, one in arm["measures"].items()} for arm in ablation["comparison"]["arms"]}


def test_one_query_after_different_turns_has_no_list_of_its_own(config: Write, tmp_path: Path) -> None:
    """Lists are known by the query; the same turns in another form are the same query."""
    asked = {
        "c1": ("Tell me more", ["what is BM25?"]),
        "c2": ("tell  me MORE", ["What is bm25?"]),
        "c3": ("tell me more", None),
    }
    rows_of = [{"id": topic, "query": query, "turns": turns} for topic, (query, turns) in asked.items()]
    run = "".join(f"{topic} Q0 d{n} 1 1.0 other\n" for n, topic in enumerate(asked))
    retrieve = {"retrievers": {"given": {"kind": "trec", "path": "other.run"}}}
    log = {"path": "log.jsonl", "query_column": "query", "id_column": "id", "context_column": "turns"}
    rewrite = {"strategies": []}
    (tmp_path / "other.run").write_text("\ufeff" + run)
    lines(tmp_path / "log.jsonl", rows_of)
    path = config(log=log, retrieve=retrieve, rewrite=rewrite, evaluate={})
    with pytest.raises(RetrieverError) as error:
        with_given_lists(load_config(path))
    assert "topics c1 and c3 have the query 'tell me more' after different turns" in str(error.value)
    lines(tmp_path / "log.jsonl", rows_of[:2])
    given = with_given_lists(load_config(path)).retrieve.retrievers["given"]
    assert isinstance(given, TrecSettings)
    assert given.lists is not None
    assert list(given.lists.places) == ["tell me more"]


@pytest.mark.slow
def test_an_arm_is_measured_as_trec_eval_measures_the_file(
    config: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "other.run")
    path = config(ablate={"runs": {"other.v1": "other.run"}})
    out, err = done("ablate", path, "--json", capfd=capfd)
    found = means(json.loads(out))
    assert found["other.v1"] == pytest.approx(by_trec_eval(run), abs=1e-12)
    where = "retrieve.retrievers.other_v1: other.run: "
    for words in (
        "1 rows of the log have no list in it", "1 of its 3 topics are not in the log (q5)",
        "documents have the score of the one before", "topics ranks and scores disagree",
    ):  # fmt: skip
        assert f"{where}" in err
        assert words in err
    (place,) = (tmp_path / "runs").glob("small-*")
    theirs = [row["doc_id"] for row in rows(place, "results") if row["arm"] == "other.v1"]
    assert len(theirs) == 2 * len(DOCUMENTS)
    for gone in (place / SUCCESS, place / "commits" / "000001.json"):
        gone.unlink()
    again, _ = done("ablate", path, "--json", capfd=capfd)
    assert means(json.loads(again)) == found
    without = means(json.loads(done("ablate", config(name="without"), "--json", capfd=capfd)[0]))
    assert without == {name: of for name, of in found.items() if name != "other.v1"}


def test_what_cannot_be_is_refused_in_one_line(config: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "other.run")
    alone = {"retrievers": {"other": {"kind": "trec", "path": "other.run"}}}
    (tmp_path / "foreign.run").write_text("301 Q0 d01 1 2.0 tag\n")
    log = {"path": "small/queries.jsonl", "query_column": "text"}
    for parts, words in (
        ({"retrieve": alone}, "have lists of the log's queries alone, so that no rewrite would be searched"),
        ({"retrieve": alone | {"routes": {"general": ["other"]}}}, "remove it from the route"),
        ({"ablate": {"runs": {"other": "lost.run"}}}, "lost.run: no such file or folder"),
        (
            {"ablate": {"runs": {"other": "foreign.run"}}},
            "none of its topics (301) is an id of the log (log.id_column: query_id)",
        ),
        ({"ablate": {"runs": {"other": "small/queries.jsonl"}}}, "line 1: is not a line of topic, Q0"),
        ({"ablate": {"runs": {"other": "other.run"}}, "log": log}, "its topics are the log's ids, and log.id_column is null"),
        ({"ablate": {"runs": {"full": "other.run"}}}, "ablate.runs.full: another arm has this name"),
        ({"ablate": {"runs": {"bm25": "other.run"}}}, "a retriever is called 'bm25'"),
    ):
        assert main(["ablate", config(**parts)]) == 2
        err = capfd.readouterr().err.strip()
        assert words in err.splitlines()[-1], err
