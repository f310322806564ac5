"""Whole runs with `retrieve.filters`: no query is ever given a document of another tenant."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, DmqrError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.job.prepare import prepare
from jobs.log.judgements import Judgements
from jobs.measure.judged_rows import database, query_of
from jobs.pages.report import report
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import Given
from retrievers.local.build import build_local_index
from retrievers.retriever import SearchText, open_retriever
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import index_fields

Values = dict[str, Any]
Made = Callable[[Any], str]
DOCUMENTS = [
    ("d1", "the lamp of the lighthouse", "north"), ("d2", "a lamp and a lens", "south"), ("d3", "bread and yeast", "north"),
    ("d4", "rye bread with a lamp", "south"), ("d5", "a lamp of nobody", None), ("d6", "yeast of the south", "south"),
]  # fmt: skip
TENANT = {doc_id: tenant for doc_id, _, tenant in DOCUMENTS}
LOG = [("lamp", "north"), ("Lamp", "south"), ("lamp", "south"), ("bread", "south"), ("bread", "north"), ("lamp", None),
       ("bread", "nowhere")]  # fmt: skip
QUERIES = {query_id(text, None, {"tenant": shop}): shop for text, shop in LOG if shop}


@pytest.fixture
def values(values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_dense: Values) -> Values:
    monkeypatch.chdir(tmp_path)
    doc_ids, texts, tenants = zip(*DOCUMENTS, strict=True)
    pq.write_table(pa.table({"doc_id": doc_ids, "text": texts, "tenant": tenants}), "corpus.parquet")
    asked, shops = zip(*LOG, strict=True)
    pq.write_table(pa.table({"id": [str(n) for n in range(len(LOG))], "query": asked, "shop": shops}), "log.parquet")
    answers = {"lamp": ["lens of a lamp", "lighthouse"], "bread": ["rye yeast", "lamp"]}
    lines = [{"query": query, "completions": {"general": one, "hyde": [one, other]}} for query, (one, other) in answers.items()]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    build_local_index(tmp_path / "index", "corpus.parquet", index_fields("english", served_dense["encoder"]))
    bm25 = {"kind": "local", "index": "index"}
    values["log"] |= {"id_column": "id"}
    hyde = {"hyde": {"n": 2, "temperature": 0.5, "as_one": "with_original"}}
    values["rewrite"] |= {"strategies": ["general", hyde], "calls": "separate"}
    values["retrieve"] = {
        "retrievers": {"bm25": bm25, "dense": bm25 | {"encoder": served_dense["encoder"]}}, "filters": {"tenant": "shop"}
    }  # fmt: skip
    return values | {"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 1}, "limits": {"error_rate": 1}}


def done(path: str) -> Path:
    prepared = prepare(load_config(path), path)
    return run_in_process(prepared)


@pytest.mark.slow
def test_each_query_has_documents_of_its_tenant_alone(values: Values, config_file: Made) -> None:
    folder = done(config_file(values))
    assert {row["query_id"]: dict(row["values"])["shop"] for row in rows(folder, "queries")} == QUERIES
    assert sum(row["log_count"] for row in rows(folder, "queries")) == 6
    (rejected,) = [row for row in rows(folder, "errors") if row["stage"] == "log"]
    assert (rejected["log_id"], rejected["reason"], rejected["raw"]) == ("5", "no_filter", "lamp")
    for table in ("runs", "results"):
        found = rows(folder, table)
        assert {TENANT[row["doc_id"]] for row in found} == {"north", "south"}
        assert all(TENANT[row["doc_id"]] == QUERIES[row["query_id"]] for row in found)
    nowhere = query_id("bread", None, {"tenant": "nowhere"})
    assert [row["reason"] for row in rows(folder, "errors") if row["query_id"] == nowhere] == ["no_hits"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bm25", "dense"])
def test_a_list_is_the_whole_one_without_other_tenants(name: str, values: Values, config_file: Made) -> None:
    path = config_file(values)
    folder = done(path)
    retriever = open_retriever(name, load_config(path).retrieve.retrievers[name])
    for text, shop in {(text.lower(), shop) for text, shop in LOG if shop}:
        whole = retriever.search([SearchText(text)], 100).doc_ids.to_pylist()
        of = query_id(text, None, {"tenant": shop})
        found = sorted(
            (row["rank"], row["doc_id"]) for row in rows(folder, "runs")
            if (row["query_id"], row["strategy"], row["retriever"]) == (of, "original", name)
        )  # fmt: skip
        assert [doc_id for _, doc_id in found] == [doc_id for doc_id in whole if TENANT[doc_id] == shop]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_queries(values: Values, config_file: Made) -> None:
    path = config_file(values)
    whole = done(path)
    due = sorted((row["query_id"], row["rank"], row["doc_id"]) for row in rows(whole, "results"))
    for name in ("_SUCCESS.json", "commits/000000.json", "commits/000002.json"):
        (whole / name).unlink()
    assert done(path) == whole
    assert sorted((row["query_id"], row["rank"], row["doc_id"]) for row in rows(whole, "results")) == due


@pytest.mark.slow
def test_filters_are_part_of_the_fingerprint(values: Values, config_file: Made) -> None:
    folder = done(config_file(values))
    values["retrieve"].pop("filters")
    plain = done(config_file(values))
    assert folder != plain
    assert {row["query_id"] for row in rows(plain, "queries")} == {query_id("lamp"), query_id("bread")}


@pytest.mark.slow
def test_arms_keep_tenants_apart_and_equal_their_runs(values: Values, config_file: Made) -> None:
    together = {"bm25": {"kind": "local", "index": "index", "together": True}}
    arms = {"one list": {"rewrite.strategies": ["general"]}, "together": {"retrieve.retrievers": together}}
    path = config_file(values | {"ablate": {"arms": arms}})
    for more in ([], ["ablate.keep=9"]):  # the second takes lists and vectors that the first has stored
        ablation = prepare_ablation(load_config(path, ["retrieve.store=true", *more]), path)
        folder = run_in_process(ablation)
        for arm in ablation.compiled.arms:
            prepared = prepare(arm.config.model_copy(update={"output": "alone"}), path)
            run_in_process(prepared)
            due = {(row["query_id"], row["rank"], row["doc_id"]) for row in rows(Path(prepared.storage.root), "results")}
            found = {(r["query_id"], r["rank"], r["doc_id"]) for r in rows(folder, "results") if r["arm"] == arm.name}
            assert found == due, arm.name
            assert all(TENANT[doc_id] == QUERIES[of] for of, _, doc_id in found)


@pytest.mark.slow
def test_pages_and_files_say_whose_query_a_row_is(
    values: Values, config_file: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = [("0", "d1"), ("1", "d2"), ("3", "d6"), ("4", "d1"), ("6", "d3")]
    Path("qrels.tsv").write_text("".join(f"{log_id}\t{doc_id}\t1\n" for log_id, doc_id in judged))
    values["evaluate"] = {"qrels": "qrels.tsv"}
    shallow = values["retrieve"] | {"depth": 1}
    first, second = done(config_file(values)), done(config_file(values | {"retrieve": shallow}))
    page = report(open_run(str(first)), None, None)
    assert {"north", "south", "nowhere"} == set(re.findall("shop: <bdi>(.*?)</bdi>", page))
    table = page[page.index('<table data-csv="nothing-found">') :].partition("</table>")[0]
    assert '<th scope="col" class="words">shop</th>' in table
    assert "<bdi>nowhere</bdi>" in table
    assert "nowhere" not in report(open_run(str(first)), None, None, texts=False)
    assert main(["evaluate", str(first), "qrels.tsv", "--per-query", "each.parquet"]) == 0
    each = pq.read_table("each.parquet").to_pylist()
    assert {row["log_id"]: row["filter shop"] for row in each} == {log_id: LOG[int(log_id)][1] for log_id, _ in judged}
    capsys.readouterr()
    assert main(["diff", str(first), str(second), "qrels.tsv"]) == 0
    assert re.search(r"shop: (north|south)", capsys.readouterr().out)
    assert main(["diff", str(first), str(second), "qrels.tsv", "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)["moved"]
    assert {one["query_id"]: one["filters"]["shop"] for one in moved}.items() <= QUERIES.items()
    assert moved
    values["evaluate"] |= {"measures": ["R@10"], "baseline": "shallow"}
    path = config_file(values | {"ablate": {"arms": {"shallow": {"retrieve.depth": 1}}}})
    capsys.readouterr()
    assert main(["ablate", path]) == 0
    assert "shop: <bdi>" in (Path(capsys.readouterr().out.splitlines()[-1]) / "report.html").read_text()


def test_an_arm_cannot_change_filters(values: Values, config_file: Made) -> None:
    path = config_file(values | {"ablate": {"arms": {"a": {"retrieve.filters": {}}}}})
    with pytest.raises(ConfigError, match=r"retrieve\.filters: filters decide what a query is"):
        prepare_ablation(load_config(path), path)


def test_try_asks_for_the_value_and_searches_its_documents(values: Values, config_file: Made) -> None:
    path = config_file(values)
    with LoadedConfig(load_config(path), path, "small") as loaded, pytest.raises(ConfigError, match=r"--value shop=\.\.\.: "):
        loaded.try_query("lamp", lambda words: None)
    with LoadedConfig(load_config(path), path, "small", Given(values={"shop": "south"})) as loaded:
        trial = loaded.try_query("lamp", lambda words: None)
    assert trial.row["query_id"] == query_id("lamp", None, {"tenant": "south"})
    assert {TENANT[hit["doc_id"]] for hit in trial.row["hits"]} == {"south"}


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"tenant": "shp"}, "no column 'shp' .retrieve.filters.*shop"),
        ({"tenent": "shop"}, "no column 'tenent' to filter by .retrieve.filters.; it has: tenant"),
    ],
)
def test_what_cannot_filter_is_refused_before_anything_is_done(
    filters: dict[str, str], words: str, values: Values, config_file: Made
) -> None:
    values["retrieve"]["filters"] = filters
    path = config_file(values)
    with pytest.raises(DmqrError, match=words):
        prepare(load_config(path), path)


def test_an_index_is_not_built_without_the_column(values: Values, config_file: Made) -> None:
    values["retrieve"]["filters"] = {"language": "shop"}
    with pytest.raises(DmqrError, match=r"corpus corpus\.parquet: no column 'language' to filter by"):
        index(load_config(config_file(values)), ["corpus.parquet"], LiveDisplay(io.StringIO()))


def test_an_index_is_not_built_with_a_column_that_no_filter_compares(values: Values, config_file: Made) -> None:
    corpus = pq.read_table("corpus.parquet")
    pq.write_table(corpus.append_column("weight", pa.array([0.5] * len(corpus))), "weighed.parquet")
    values["retrieve"]["filters"] = {"weight": "shop"}
    with pytest.raises(DmqrError, match=r"retrieve\.filters\.weight: the corpus's column holds double"):
        index(load_config(config_file(values)), ["weighed.parquet"], LiveDisplay(io.StringIO()))


@pytest.mark.slow
def test_judgements_of_texts_are_refused(values: Values, config_file: Made) -> None:
    folder = done(config_file(values))
    opened = open_run(str(folder))
    with (
        database(opened) as connection,
        pytest.raises(ConfigError, match=r"with retrieve\.filters one text is several queries"),
    ):
        query_of(connection, opened, Judgements("qrels.tsv", {"lamp": {"d1": 1}}, "query"))
    values["evaluate"] = {"qrels": "qrels.tsv", "key": "query"}
    with pytest.raises(ConfigError, match=r"with retrieve\.filters one text is several queries"):
        load_config(config_file(values))
