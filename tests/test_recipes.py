"""Recipes of docs/recipes.md: each block of Python or SQL works in a folder with a finished run of the quickstart."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import duckdb
import pytest
import yaml

import dmqr

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = {
    section.partition("\n")[0]: re.findall(r"^```(python|sql)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with configs/sample and a run of it by BM25 alone, in runs/."""
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "configs" / "sample", folder / "configs" / "sample")
    values = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    del values["retrieve"]["retrievers"]["dense"]
    (folder / "configs" / "quickstart.yaml").write_text(yaml.safe_dump(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dmqr.run("configs/quickstart.yaml", cluster__address="none")
    return folder


def test_each_recipe_is_one_block_of_at_most_twenty_lines() -> None:
    assert {title: len(blocks) for title, blocks in RECIPES.items()} == dict.fromkeys(RECIPES, 1)
    lines = {title: block.count("\n") for title, [(_, block)] in RECIPES.items()}
    assert not {title: count for title, count in lines.items() if count > 20}


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_works(title: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    [(language, block)] = RECIPES[title]
    if language == "sql":
        assert duckdb.connect().execute(block).fetchone() not in (None, (0,))  # rows, or how many were written
    else:
        exec(compile(block, title, "exec"), {"__name__": "__main__"})
