"""The configs of ablations.py can be run, and what it printed last is of their arms."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ablations_page import layout, printed, tables
from page_tables import DOCS, marked, put_tables, table_of

from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config

HERE = Path(__file__).parent
PRINTED = {"methods": ("methods", "typos", "methods-full", "typos-full"), "pools": ("pools",)}


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
    assert sorted([*PRINTED, "rerank_survival"]) == sorted(path.stem for path in HERE.glob("*.yaml"))


def test_the_tables_of_the_page_are_those_of_the_prints() -> None:
    page = (DOCS / "ablations-measured.md").read_text(encoding="utf-8")
    found = layout()["tables"]
    assert marked(page) == list(found)
    for name, made in tables().items():
        shown = table_of(page, name)
        assert shown == table_of(f"<!-- table {name} -->\n{made}\n<!-- end {name} -->", name)
        assert shown[0] == [found[name]["head"], *found[name]["columns"]]
        assert [row[0] for row in shown[1:]] == list(found[name]["rows"])


def test_a_print_is_read_as_it_is_shown() -> None:
    of_set, over_sets = (printed("methods")["full"][name] for name in ("SciFact nDCG@10", "nDCG@10"))
    assert re.fullmatch(r"\.\d{3}(\\\*)?", of_set)
    assert re.fullmatch(r"\.\d{3} \([+-]0\.\d{4}\)", over_sets)


def test_tables_are_put_between_their_markers_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- table a b -->\nold\n<!-- end a b -->\n\nwords\n")
    put_tables(page, {"a b": "| x |\n|---|\n| 1 |"})
    wanted = "# Title\n\n<!-- table a b -->\n\n| x |\n|---|\n| 1 |\n\n<!-- end a b -->\n\nwords\n"
    assert page.read_text() == wanted
    put_tables(page, {"a b": "| x |\n|---|\n| 1 |"})
    assert page.read_text() == wanted
    with pytest.raises(ValueError, match="has the tables"):
        put_tables(page, {"c": "| x |"})
    page.write_text("<!-- table a b -->\nold\n")
    with pytest.raises(ValueError, match="has no <!-- end a b -->"):
        put_tables(page, {"a b": "| x |"})
