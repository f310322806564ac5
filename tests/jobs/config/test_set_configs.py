"""What `ablate.sets` says, and the configs of the sets."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.config.given import given_config
from jobs.config.load import config_of
from jobs.config.set_configs import set_config, set_warnings, sets_of
from jobs.submit.sent_config import sent_config


def loaded(values: dict[str, Any], sets: Any, **sections: Any) -> Config:
    return config_of(values | sections | {"ablate": {"sets": sets}}, "paper.yaml")


def test_a_set_is_the_config_with_what_differs(values: dict[str, Any]) -> None:
    said = {"log": "birds.jsonl", "corpus": "birds/", "index": "index/birds", "qrels": "birds.tsv", "key": "query"}
    config = loaded(values, {"birds": said, "tools": {"log": {"path": "tools.csv", "id_column": "id"}}})
    birds, tools = sets_of(config).values()
    assert (birds.name, tools.name) == ("birds", "tools")
    assert (birds.log.path, birds.log.query_column, birds.log.id_column) == ("birds.jsonl", config.log.query_column, None)
    assert birds.corpus.paths == ["birds/"]
    assert birds.retrieve.retrievers["bm25"].model_dump()["index"] == "index/birds"
    assert (birds.evaluate.qrels, birds.evaluate.key, birds.evaluate.measures) == (
        "birds.tsv", "query", config.evaluate.measures,
    )  # fmt: skip
    assert (tools.log.path, tools.log.id_column, tools.evaluate.qrels) == ("tools.csv", "id", None)
    assert tools.retrieve == config.retrieve
    assert {birds.store, tools.store} == {"runs/store"}
    assert not birds.ablate.sets


def test_one_index_for_each_retriever(values: dict[str, Any]) -> None:
    values["retrieve"]["retrievers"]["second"] = {"kind": "local", "index": "other", "analyzer": "unicode"}
    birds = set_config(loaded(values, {"birds": {"index": {"second": "birds2"}}}), "birds")
    assert [one.model_dump()["index"] for one in birds.retrieve.retrievers.values()] == ["index", "birds2"]
    with pytest.raises(ConfigError, match=r"ablate\.sets\.birds\.index: no retriever 'thrd'.*bm25, second"):
        loaded(values, {"birds": {"index": {"thrd": "x"}}})


def test_the_name_of_the_set_fills_texts_of_the_config_and_of_its_arms(values: dict[str, Any]) -> None:
    values["log"]["path"] = "data/{set}/log-{date}.parquet"
    values["retrieve"]["retrievers"]["bm25"]["index"] = "index/{set}"
    values |= {"evaluate": {"qrels": "data/{set}/qrels.tsv"}}
    values["ablate"] = {"sets": ["birds", "tools"], "arms": {"old": {"retrieve.retrievers.bm25.index": "old/{set}"}}}
    config = config_of(values, "paper.yaml", date="2026-01-31")
    tools = sets_of(config)["tools"]
    assert (tools.log.path, tools.log.date) == ("data/tools/log-2026-01-31.parquet", "2026-01-31")
    assert tools.evaluate.qrels == "data/tools/qrels.tsv"
    assert tools.ablate.arms == {"old": {"retrieve.retrievers.bm25.index": "old/tools"}}
    assert config.log.path == "data/birds/log-2026-01-31.parquet"  # of a run: the first set, which it is told
    assert set_warnings(config) == (
        "ablate.sets: this is the set birds alone, ablate goes over all; --set ablate.sets=[NAME] chooses another",
    )
    assert not set_warnings(tools)


def test_a_config_may_lack_what_each_set_says_but_no_set_has_it_of_another(values: dict[str, Any]) -> None:
    log = values.pop("log")
    birds = {"log": {"path": "birds.csv", "query_column": "text", "id_column": "id"}}
    both = loaded(values, {"birds": birds, "tools": {"log": {"path": "tools.csv", "query_column": "q"}}})
    assert both.log.path == "birds.csv"
    assert sets_of(both)["tools"].log.id_column is None
    assert sets_of(given_config(both, {}))["tools"].log.id_column is None  # read again, as from a program
    with pytest.raises(ConfigError, match=r"log.query_column: is missing"):
        loaded(values, {"birds": birds, "tools": {"log": {"path": "tools.csv"}}})
    config = loaded(values, {"birds": birds, "tools": {"log": "tools.csv"}}, log={"query_column": log["query_column"]})
    assert sets_of(config)["tools"].log.path == "tools.csv"


def test_a_section_of_another_kind_replaces_the_whole(values: dict[str, Any]) -> None:
    live = {"kind": "openai", "base_url": "http://localhost:8000/v1", "model": "m"}
    config = loaded(values, {"birds": {"rewrite": {"engine": live}}, "tools": {"rewrite.engine.path": "tools.jsonl"}})
    birds, tools = sets_of(config).values()
    assert birds.rewrite.engine is not None
    assert tools.rewrite.engine is not None
    assert (birds.rewrite.engine.kind, tools.rewrite.engine.model_dump()["path"]) == ("openai", "tools.jsonl")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"fuse.k": 10}, r"ablate\.sets\.birds: fuse\.k: no set says this; .* beside ablate, or in an arm"),
        ({"output": "x"}, r"ablate\.sets\.birds: output: no set says this"),
        ({"qrel": "x"}, r"qrel: no set says this.*did you mean 'qrels'"),
        ({"evaluate": {"measures": ["AP"]}}, r"evaluate\.measures: no set says this"),
        ({"log.max_chars": "many"}, r"ablate\.sets\.birds: log\.max_chars: input should be a valid integer"),
    ],
)
def test_what_is_alike_in_all_sets_and_wrong_values_are_refused(values: dict[str, Any], said: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        sets_of(loaded(values, {"birds": said, "tools": {}}))


@pytest.mark.parametrize("sets", ["birds", {"birds": 3}, {"a/b": {}}, [1]])
def test_what_is_no_set_is_refused(values: dict[str, Any], sets: Any) -> None:
    with pytest.raises(ConfigError, match=r"ablate\.sets"):
        loaded(values, sets)


SAYING = {
    "one": {"log": "one.csv", "qrels": "one.tsv"},
    "two": {"log": {"path": "two.csv", "query_column": "q", "id_column": "id"}, "key": "query", "rewrite.language": "German"},
}


@pytest.mark.parametrize("settings", [["ablate.sets=[two]"], {"ablate.sets": ["two"]}])
def test_a_chosen_set_keeps_what_it_says(values: dict[str, Any], settings: Any) -> None:
    whole = loaded(copy.deepcopy(values), SAYING)
    config = config_of(values | {"ablate": {"sets": SAYING}}, "paper.yaml", settings)
    assert list(config.ablate.sets) == ["two"]
    assert set_config(config, "two") == set_config(whole, "two").model_copy(update={"store": config.store_folder})
    assert set_config(config, "two").log.id_column == "id"
    assert set_config(given_config(whole, {"ablate.sets": ["two"]}), "two") == set_config(config, "two")


def test_a_chosen_set_that_is_none_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--set ablate\.sets: no set 'tow'; did you mean 'two'"):
        config_of(values | {"ablate": {"sets": SAYING}}, "paper.yaml", ["ablate.sets=[tow]"])


def test_an_override_of_a_config_object_is_that_of_its_file(values: dict[str, Any]) -> None:
    sets = {"one": {"log": "one.csv", "index": "i/one"}, "two": {"log": "two.csv", "index": "i/two"}}
    overrides = {"log.max_chars": 77, "retrieve.retrievers.bm25.analyzer": "german", "retrieve.depth": 33, "fuse.k": 7}
    read = loaded(copy.deepcopy(values), sets)
    from_file = given_config(values | {"ablate": {"sets": sets}}, overrides)
    from_object = given_config(read, overrides)
    assert sets_of(from_object) == sets_of(from_file)
    for one in sets_of(from_object).values():
        assert (one.log.max_chars, one.retrieve.depth) == (77, 33)
        assert one.retrieve.retrievers["bm25"].model_dump()["analyzer"] == "german"
    with pytest.raises(ConfigError, match=r"config: log\.path: sets have values of their own \(one, two\); override it in"):
        given_config(read, {"log.path": "other.csv"})


def test_a_submitted_job_is_sent_the_judgements_of_each_set_and_reads_the_same_sets(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("birds", "tools"):
        (tmp_path / f"{name}.tsv").write_text(f"{name}\td1\t1\n")
    config = loaded(values, ["birds", "tools"], evaluate={"qrels": "{set}.tsv"}, log={"path": "{set}.csv", "query_column": "q"})
    sent = sent_config(config)
    assert {file.name for file in sent.files.values()} >= {"birds.tsv", "tools.tsv"}
    there = sets_of(config_of(sent.values, "there.yaml"))
    assert {name: one.log.path for name, one in there.items()} == {
        name: str(tmp_path / f"{name}.csv") for name in ("birds", "tools")
    }
    qrels = {name: one.evaluate.qrels for name, one in there.items()}
    assert {name: sent.files[str(place)].name for name, place in qrels.items()} == {
        name: f"{name}.tsv" for name in ("birds", "tools")
    }
