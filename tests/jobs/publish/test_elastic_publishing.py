"""A night in a real Elasticsearch: exported, promoted, looked up by every query of the log, rolled back."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import quote

import pytest

from cluster.errors import ConfigError, DmqrError, HeldError
from jobs.__main__ import main
from jobs.publish.elastic import loading
from jobs.publish.elastic.target import ElasticTarget
from jobs.publish.target import open_target
from jobs.runs.folder import open_run
from jobs.verbs.inputs import GroundTruth
from jobs.verbs.publishing import ExportArguments, PromoteArguments, promoted, rolled_back
from jobs.verbs.publishing import exported as export
from rewriters.normalise import query_id
from tests.support.jobs.look_up_rows import HOSTILE, Row, bare, expected_rows
from tests.support.jobs.report_runs import Query, RunMaker
from tests.support.retrievers.elastic_server import Server, ask

Night = Callable[..., Path]
OPEN = {"gates": {"error_rate": None, "coverage": None, "changed_first": None}}
TALK = ("lamp", "who kept the lighthouse?")
FIRST: list[Any] = [*HOSTILE, "moon and tides", "spring tide", TALK]
SECOND: list[Any] = [*HOSTILE, "moon and tides", "harbours at night"]


def put(run: Path, alias: str, version: str, **more: Any) -> Any:
    return export(open_run(str(run)), ExportArguments({"to": f"elastic:{alias}"} | more.pop("choice", {}), version, **more))


def promote(run: Path, alias: str, version: str, **more: Any) -> Any:
    given = PromoteArguments({"to": f"elastic:{alias}"} | OPEN, version, **more)
    return promoted(open_run(str(run)), given, GroundTruth(lambda _: None, "--qrels"))


def looked_up(server: str, name: str, asked: Any) -> Row:
    """GET NAME/_doc/<key>, with no client of ours between."""
    key = query_id(*((asked,) if isinstance(asked, str) else asked))
    with urllib.request.urlopen(f"{server}/{quote(name)}/_doc/{key}", timeout=60) as answer:
        found: Row = json.load(answer)["_source"]
    return found


def every_row(name: str) -> dict[str, Row]:
    ask("POST", f"/{name}/_refresh")
    hits = ask("POST", f"/{name}/_search", {"size": 10_000})["hits"]["hits"]
    return {one["_id"]: one["_source"] for one in hits}


@pytest.mark.slow
def test_every_query_of_the_night_is_looked_up(
    elasticsearch: str, new_name: Callable[[], str], night: Night, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, alias = night("one", FIRST), night("two", SECOND, said="other"), new_name()
    assert put(first, alias, "one").record.counts["rows"] == len(FIRST)
    assert promote(first, alias, "one").history == []
    rows = expected_rows(first)[0]
    for asked in FIRST:
        found = looked_up(elasticsearch, alias, asked)
        assert bare(found) == rows[found["key"]]
        assert found["version"] == "one"
    assert [row["context"] for row in every_row(alias).values() if "context" in row] == [TALK[1]]
    # the next night, with what has changed; read back it equals a whole export of it
    done = put(second, alias, "two", since="one")
    old, new = rows, expected_rows(second)[0]
    kept = old.keys() & new.keys()
    assert done.record.changes == {
        "since": "one", "new": len(new.keys() - old.keys()), "gone": len(old.keys() - new.keys()),
        "changed": sum(old[key] != new[key] for key in kept), "same": sum(old[key] == new[key] for key in kept),
    }  # fmt: skip
    put(second, f"{alias}-whole", "two")
    assert every_row(f"{alias}-two") == every_row(f"{alias}-whole-two")
    assert {key: bare(row) for key, row in every_row(f"{alias}-two").items()} == new
    # the alias moves and comes back
    bounds = [word for name in ("error_rate", "coverage") for word in ("--set", f"publish.gates.{name}=null")]
    assert main(["promote", str(second), "--to", f"elastic:{alias}", "--version", "two", *bounds]) == 0
    assert "before it one" in capfd.readouterr().out
    assert looked_up(elasticsearch, alias, "harbours at night")["version"] == "two"
    assert list(ask("GET", f"/{alias}")) == [f"{alias}-two"]
    assert main(["rollback", "--to", f"elastic:{alias}", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["version"] == "one"
    assert looked_up(elasticsearch, alias, "spring tide")["version"] == "one"
    with pytest.raises(ConfigError, match=r"^one: no version was promoted before it"):
        rolled_back(f"elastic:{alias}")
    promote(second, alias, "two")
    promote(first, alias, "one")  # an earlier one, promoted again, is the newest
    assert [rolled_back(f"elastic:{alias}").version for _ in range(2)] == ["two", "one"]


@pytest.mark.slow
@pytest.mark.usefixtures("elasticsearch")
def test_a_version_is_found_completed_or_refused(
    new_name: Callable[[], str], night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, alias = night("one", FIRST), new_name()
    monkeypatch.setattr(loading, "_AT_ONCE", 3)
    plain, sent = loading.BulkLoader.add, []

    def killed(self: Any, documents: Any) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(len(documents))
        plain(self, documents)

    with monkeypatch.context() as patch:
        patch.setattr(loading.BulkLoader, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            put(run, alias, "one")
    assert 0 < len(every_row(f"{alias}-one")) < len(FIRST)
    assert open_target(f"elastic:{alias}").read("one") is None
    with pytest.raises(ConfigError, match=r"^one in elastic:.*: there is no complete export of it; export it first"):
        promote(run, alias, "one")
    with pytest.raises(ConfigError, match=r"was exported with other choices \(hits 10\); give another --version"):
        put(run, alias, "one", choice={"hits": 2})
    assert not put(run, alias, "one").existed
    assert {key: bare(row) for key, row in every_row(f"{alias}-one").items()} == expected_rows(run)[0]
    assert put(run, alias, "one").existed
    key, *_ = every_row(f"{alias}-one")
    ask("DELETE", f"/{alias}-one/_doc/{key}?refresh=true")
    for verb in (put, promote):
        with pytest.raises(ConfigError, match=rf"-one at .*: holds {len(FIRST) - 1} rows in place of {len(FIRST)}; remove it"):
            verb(run, alias, "one")
    ask("PUT", f"/{alias}-other", {})
    with pytest.raises(ConfigError, match=r"was not made by dmqr export"):
        put(run, alias, "other")
    taken = new_name()
    ask("PUT", f"/{taken}", {})
    with pytest.raises(ConfigError, match=r"is an index at .*, so it cannot be the alias of versions"):
        open_target(f"elastic:{taken}").current()
    with pytest.raises(ConfigError, match=r"is an index at .*, so it cannot be the alias of versions"):
        put(run, taken, "one")
    assert ask("GET", f"/{taken}-*") == {}


@pytest.mark.slow
@pytest.mark.usefixtures("elasticsearch")
def test_two_exports_at_once(new_name: Callable[[], str], night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    run, alias = night("one", FIRST), new_name()
    both = Barrier(2)
    plain = loading.load_rows

    def together(*given: Any) -> None:
        both.wait(60)
        plain(*given)

    monkeypatch.setattr("jobs.publish.elastic.target.load_rows", together)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: put(run, alias, "one"), range(2)))
    assert done[0].record == done[1].record
    rows = every_row(f"{alias}-one")
    assert {key: bare(row) for key, row in rows.items()} == expected_rows(run)[0]
    assert ask("GET", f"/{alias}-one/_count")["count"] == len(FIRST)


@pytest.mark.slow
@pytest.mark.usefixtures("elasticsearch")
@pytest.mark.parametrize("before", ["nothing", "zero"])
def test_of_two_promotions_at_once_one_stays(
    before: str, new_name: Callable[[], str], night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, alias = night("one", FIRST), new_name()
    for version in ("zero", "one", "two"):
        put(run, alias, version)
    if before == "zero":
        promote(run, alias, "zero")
    both = Barrier(2)
    plain = ElasticTarget.move

    def together(*given: Any) -> None:
        both.wait(60)
        plain(*given)

    monkeypatch.setattr(ElasticTarget, "move", together)

    def one(version: str) -> str:
        try:
            return str(promote(run, alias, version).version)
        except HeldError as error:
            return error.code

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, ("one", "two")))
    behind = list(ask("GET", f"/{alias}"))
    assert len(behind) == 1
    assert behind[0].removeprefix(f"{alias}-") in found
    if before == "zero":  # a first promotion that comes wholly before the other one is a promotion, too
        assert "publish-overtaken" in found


@pytest.mark.usefixtures("elasticsearch")
def test_an_index_is_a_version_of_one_alias_alone(new_name: Callable[[], str], night: Night) -> None:
    run, alias = night("one", FIRST[:2]), new_name()
    put(run, f"{alias}-de", "one")  # its index is called as that of the version de-one of the other alias would be
    with pytest.raises(ConfigError, match=r"-de-one at .*: is one of another target; give another --version") as error:
        put(run, alias, "de-one")
    assert error.value.code == "publish-version"
    with pytest.raises(ConfigError, match=r"^de-one in elastic:.*: there is no complete export of it"):
        promote(run, alias, "de-one")
    assert promote(run, f"{alias}-de", "one").done


@pytest.mark.usefixtures("elasticsearch")
def test_nothing_is_compared_with_an_index_that_lacks_rows(new_name: Callable[[], str], tmp_path: Path) -> None:
    run, alias = Path(RunMaker(tmp_path)([Query("a"), Query("b")]).storage.root), new_name()
    for version in ("one", "two"):
        put(run, alias, version)
    promote(run, alias, "one")
    key, _ = every_row(f"{alias}-one")
    ask("DELETE", f"/{alias}-one/_doc/{key}?refresh=true")
    line = rf"^index {alias}-one at .*: holds 1 rows in place of 2; remove it, and export it again"
    for check in (True, False):
        with pytest.raises(ConfigError, match=line) as error:
            promote(run, alias, "two", check=check)
        assert error.value.code == "publish-version"
    with pytest.raises(ConfigError, match=line):
        put(run, alias, "three", since="one")
    assert (list(ask("GET", f"/{alias}")), ask("GET", f"/{alias}-three*")) == ([f"{alias}-one"], {})


@pytest.mark.usefixtures("elasticsearch")
def test_an_alias_that_stands_for_several_indexes_is_no_version(new_name: Callable[[], str], tmp_path: Path) -> None:
    """As after a kill of the second of two first promotions: neither is promoted, and no promotion leaves the other there."""
    run, alias = Path(RunMaker(tmp_path)([Query("a")]).storage.root), new_name()
    for version in ("one", "two", "three"):
        put(run, alias, version)
    promote(run, alias, "two")
    ask("POST", "/_aliases", {"actions": [{"add": {"index": f"{alias}-one", "alias": alias}}]})
    line = rf"^elastic:{alias} at .*: the alias stands for {alias}-one and {alias}-two, so .*; take all but one out of it"
    for version in ("one", "two", "three"):
        with pytest.raises(ConfigError, match=line) as error:
            promote(run, alias, version)
        assert error.value.code == "publish-version"
    with pytest.raises(ConfigError, match=line):
        rolled_back(f"elastic:{alias}")
    assert sorted(ask("GET", f"/{alias}")) == [f"{alias}-one", f"{alias}-two"]
    ask("POST", "/_aliases", {"actions": [{"remove": {"index": f"{alias}-one", "alias": alias}}]})
    assert promote(run, alias, "three").history == ["two"]
    assert list(ask("GET", f"/{alias}")) == [f"{alias}-three"]


def test_a_server_that_is_away_is_one_line(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOWHERE", "http://127.0.0.1:9")
    run = night("one", ["yeast"])
    with pytest.raises(
        DmqrError, match=r"^--to: no good answer from http://127.0.0.1:9: .*; start the server, or correct NOWHERE"
    ):
        put(run, "rewrites", "one", access=("NOWHERE", None))


@pytest.mark.slow  # a server of its own, which asks for keys
def test_a_key_with_the_rights_of_the_docs_is_enough(
    secured_server: Server, new_name: Callable[[], str], night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, alias = night("one", FIRST), new_name()
    monkeypatch.setenv("THERE", secured_server.url)
    access = ("THERE", "KEY")
    with pytest.raises(DmqrError, match=r"asks for a key; name its variable in api_key_env"):
        put(run, alias, "one", access=("THERE", None))
    monkeypatch.setenv("KEY", secured_server.key(alias, "write", "manage"))
    put(run, alias, "one", access=access)
    put(run, alias, "two", access=access, since="one")
    for version in ("one", "two"):
        assert promote(run, alias, version, access=access).done
    assert rolled_back(f"elastic:{alias}", access).version == "one"
    monkeypatch.setenv("KEY", secured_server.key(alias))  # may read, and no more
    assert rolled_back(f"elastic:{alias}", access, check=True).version == "one"
    with pytest.raises(DmqrError, match=r"does not allow PUT /.* with this key; give it the right") as error:
        put(run, alias, "three", access=access)
    assert error.value.code == "elastic-access"
