"""A run is published from Python as by the verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dmqr
from jobs.__main__ import main

OPEN = {"error_rate": None, "coverage": None}


def test_published_and_taken_back(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    first = dmqr.export(run, "to", version="one", hits=1)
    assert (first["existed"], first["counts"]["rows"], first["choices"]["hits"]) == (False, 3, 1)
    assert main(["export", run.folder, "--to", "to", "--version", "one", "--hits", "1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == json.loads(json.dumps(first | {"existed": True}))
    second = dmqr.export(run.folder, "to", version="two", since="one")
    assert second["changes"]["since"] == "one"
    grades = "qrels.tsv"
    checked = dmqr.promote(run, "to", version="one", gates={"quality": {"floor": 2.0}}, qrels=grades, key="log_id", check=True)
    assert [one["name"] for one in checked["gates"] if not one["passed"]] == ["quality"]
    with pytest.raises(dmqr.ConfigError, match=r"^publish.gates.quality: nDCG@10 of the served hits is ") as error:
        dmqr.promote(run, "to", version="one", gates=OPEN | {"quality": {"floor": 2.0}}, qrels=grades)
    assert (error.value.code, error.value.exit_code) == ("publish-gate", 1)
    for version in ("one", "two"):
        assert dmqr.promote(run, "to", version=version, gates=OPEN)["done"]
    assert json.loads(Path("to/current.json").read_text())["version"] == "two"
    assert dmqr.rollback("to")["version"] == "one"
    with pytest.raises(dmqr.ConfigError, match="no version was promoted before it"):
        dmqr.rollback("to")


def test_a_target_is_missing(here: Path) -> None:
    run = dmqr.run("job.yaml", cluster__address="none")
    with pytest.raises(dmqr.ConfigError, match="--to is missing: where versions lie"):
        dmqr.export(run)
    named = dmqr.run("job.yaml", cluster__address="none", publish__to="named")
    assert named.folder == run.folder  # the section is no part of what a run is known by
