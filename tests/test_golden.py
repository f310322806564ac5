"""The presets of the docs give the tables, counts of costs and fingerprints that are frozen in tests/golden."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import dmqr
from jobs.config.load import load_config
from jobs.tables import FAILED, KILLED
from jobs.try_one.trial import LoadedConfig
from tests.support.golden import NAMES, QUERIES, ROOT, World, found, frozen, world


@pytest.fixture(scope="module")
def presets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("golden")) as made:
        yield made


def differences(due: Any, own: Any, where: str = "") -> Iterator[str]:
    """Lines that name each value which is not the frozen one."""
    if isinstance(due, dict) and isinstance(own, dict):
        for key in {**due, **own}:
            yield from differences(due.get(key), own.get(key), f"{where}/{key}")
    elif due != own:
        yield f"{where}\n  frozen: {json.dumps(due, ensure_ascii=False)}\n  now:    {json.dumps(own, ensure_ascii=False)}"


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_gives_its_frozen_results(name: str, presets: World) -> None:
    lines = list(differences(frozen(name), found(presets, name)))
    if lines:
        pytest.fail(f"{name} differs (if it should: python -m tests.support.golden --write {name}):\n" + "\n".join(lines))


@pytest.mark.parametrize("name", sorted(one.stem for one in (ROOT / "configs").glob("*.yaml") if one.stem != "prices"))
def test_every_preset_is_planned_and_tried(name: str, presets: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(presets.file(name))
    monkeypatch.chdir(presets.place)
    config = load_config(file, ["name=plan"])
    values = dmqr.plan(file, name="plan").values
    assert values["queries"] == QUERIES
    with LoadedConfig(config, file, name) as loaded:
        trial = loaded.try_query("why does bread rise", lambda _: None)
    assert trial.row["hits"]
    assert not [one for one in trial.row["errors"] if one["reason"] in (FAILED, KILLED)]


def test_another_fusion_weight_shows_in_the_results_alone(presets: World) -> None:
    own = found(presets, "quickstart", ['fuse.weights={"keyword": 0.99}'])
    assert [line.split("\n")[0] for line in differences(frozen("quickstart"), own) if "hash" in line] == [
        "/tables/results/hash"
    ]
