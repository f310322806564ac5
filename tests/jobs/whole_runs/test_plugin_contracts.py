"""Examples of docs/python.md keep the contracts that authors run, and what does not keep them is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmqr.testing import (
    EngineContract,
    RerankerContract,
    RetrieverContract,
    engine_settings_of,
    reranker_settings_of,
    settings_of,
)
from retrievers.retriever import SearchText
from tests.support.plugins import page_file


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, passages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("overlap.py", "shares.py", "echo.py"):
        (tmp_path / name).write_text(page_file(name))
    (tmp_path / "overlap.json").write_text(json.dumps({"corpus": "sha256:c", "texts": passages}))
    monkeypatch.chdir(tmp_path)


class TestOverlap(RetrieverContract):
    texts = (SearchText("light of a lamp at sea"), SearchText("bread and yeast"))

    def settings(self) -> Any:
        return settings_of("overlap:OverlapSettings", index="overlap.json")


class TestCoverage(RerankerContract):
    def settings(self) -> Any:
        return reranker_settings_of("shares:Coverage")


class TestEcho(EngineContract):
    def settings(self) -> Any:
        return engine_settings_of("echo:Echo")


WRONG: dict[str, tuple[Any, str, str, Callable[[Any], None]]] = {
    "a list that is too long": (
        TestOverlap, "lists_of(found, depth)", "lists_of(found, depth + 1)", lambda c: c.test_lists_are_ordered_and_bounded()
    ),
    "a score that is none": (
        TestCoverage, "/ max(1, len(words))", '* float("nan")', lambda c: c.test_a_pair_has_one_finite_score()
    ),
    "a score by its place": (
        TestCoverage, "return [self.share(query, passage.lower())", "return [len(queries) + self.share(query, passage.lower())",
        lambda c: c.test_a_pair_has_the_same_score_alone_and_in_a_batch(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_a_contract_is_told(name: str, tmp_path: Path) -> None:
    contract, right, wrong, check = WRONG[name]
    for file in tmp_path.glob("*.py"):
        file.write_text(file.read_text().replace(right, wrong))
    with pytest.raises((AssertionError, ValueError)):
        check(contract())


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="has no Cover; did you mean 'Coverage'"):
        reranker_settings_of("shares:Cover")
