"""What a file of the user may hold, and what a wrong one says: one line with the file, the key and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import RewriterError
from rewriters.pool import load, read_local, shipped

PATH = "domains/sub_query.yaml"
GOOD: dict[str, Any] = {
    "label": "Sub-Query Rewriting",
    "definition": "the first question to answer",
    "example": "which licence is accepted in Iceland",
    "prompt": "Ask the first question to answer.\n\nQuery: {query}",
    "joint": True,
}


def refused(text: str, entry: Any = PATH) -> str:
    with pytest.raises(RewriterError) as error:
        load(entry, read=lambda _: text)
    assert error.value.code == "strategy"
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"label: caf\xe9\n")
    for file, said in (("none.yaml", "No such file or directory"), ("latin.yaml", "is not UTF-8"), ("", "Is a directory")):
        path = f"{tmp_path}/{file}"
        with pytest.raises(RewriterError) as error:
            load(path)
        assert str(error.value) == f"{path}: cannot be read: {said}; correct the path, or the file"


def test_a_file_on_this_machine_is_read_and_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "medical.yaml"
    path.write_text(yaml.safe_dump(GOOD | {"label": "Fachwörter"}, allow_unicode=True), encoding="utf-8")
    strategy = load(str(path))
    assert (strategy.name, strategy.label, strategy.own_file) == ("medical", "Fachwörter", True)
    assert load({str(path): {"weight": 0.5}}).name == "medical(weight=0.5)"


def test_a_strategy_outside_the_joint_request_needs_no_definition() -> None:
    fields = GOOD | {"definition": "", "example": "", "joint": False}
    assert not load(PATH, read=lambda _: yaml.safe_dump(fields)).is_joint


@pytest.mark.parametrize("name", shipped())
def test_a_copy_of_ours_under_another_name_asks_for_the_same(name: str, tmp_path: Path) -> None:
    ours = Path(__file__).parents[2] / "rewriters" / "strategies" / f"{name}.yaml"
    (tmp_path / "mine.yaml").write_text(read_local(str(ours)))
    mine = load(f"{tmp_path}/mine.yaml")
    assert mine.model_copy(update={"name": name, "base": name, "own_file": False}) == load(name)
