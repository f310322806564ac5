"""The configs of ablations.py can be run, and what it printed last is of their arms."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config

HERE = Path(__file__).parent
PRINTED = {"methods": ("methods", "typos", "methods-full", "typos-full"), "pools": ("pools",), "chosen": ("chosen",)}


def printed_arms(name: str) -> list[str]:
    """The arms of the first table of a file in measured/."""
    rows = (HERE / "measured" / f"{name}.md").read_text(encoding="utf-8").partition("| means |")[2].split("\n\n")[0]
    return [row.split(" | ")[0].removeprefix("| ") for row in rows.splitlines()[2:]]


@pytest.mark.parametrize("config", PRINTED)
def test_the_printed_tables_are_of_the_arms_of_the_config(config: str) -> None:
    arms = arms_of(load_config(str(HERE / f"{config}.yaml")))
    always = [arm.name for arm in arms if arm.family != "grid"]  # arms of a grid that are an earlier one are not made
    for name in PRINTED[config]:
        found = printed_arms(name)
        assert found[: len(always)] == always
        assert set(found) <= {arm.name for arm in arms}


def test_every_config_is_printed() -> None:
    assert sorted(PRINTED) == sorted(path.stem for path in HERE.glob("*.yaml"))
