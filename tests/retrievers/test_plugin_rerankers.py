"""A reranker that is a plug-in, behind a service: what is sent, what it is known by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from cluster.errors import RetrieverError
from cluster.settings import REQUIRED
from retrievers.reranker import OfPlugin, open_reranker
from retrievers.rerankers.kinds import AnyRerankerSettings
from retrievers.rerankers.settings import RerankerSettings
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.fake_models import OVERLOADED, Said
from tests.support.retrievers.judging_service import JudgingService

HOSTED = f"{ROOT}/configs/plugins/hosted.py:Hosted"


def shared(query: str, texts: Sequence[str]) -> list[float]:
    words = set(query.lower().split())
    return [len(words & set(text.lower().rstrip(".").split())) / max(1, len(words)) for text in texts]


@pytest.fixture(scope="class")
def service() -> Iterator[JudgingService]:
    with JudgingService("openai", "judge-1", score=shared) as one:
        yield one


def hosted(**values: object) -> RerankerSettings:
    found: RerankerSettings = TypeAdapter(AnyRerankerSettings).validate_python(
        {"kind": HOSTED, "model": "judge-1", **values}, context=REQUIRED
    )
    return found


def test_requests_are_counted_and_a_busy_service_is_waited_for(service: JudgingService) -> None:
    settings = hosted(base_url=service.address, batch=2, attempts=3)
    reranker = open_reranker(settings)
    assert isinstance(reranker, OfPlugin)
    service.fail("lamp", OVERLOADED, 2)
    service.fail("lens", Said(500), 1)
    scores = reranker.score(["lamp"] * 3 + ["lens"], ["a lamp", "a lens", "a lamp post", "a lens"])
    assert scores.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert reranker.requests(["lamp", "lens"]) == {"lamp": 4, "lens": 2}
    assert reranker.requests(["lamp"]) == {}


def test_its_identity_has_no_place_and_no_speed(service: JudgingService) -> None:
    def known(**more: object) -> dict[str, object]:
        return hosted(**{"base_url": service.address, **more}).known_by()

    assert known() == known(
        base_url="http://elsewhere:1/v2", batch=3, max_in_flight=1, timeout_seconds=5, keep=3, combine="replace"
    )
    assert known() != known(detail="fast")
    assert known() != known(model="judge-2")
    assert "configs" not in repr(known())


def test_a_service_without_scores_is_refused() -> None:
    with JudgingService("openai", "judge-1", score=shared) as service:
        service.spoil = lambda _: {"judged": []}
        settings = hosted(base_url=service.address, attempts=1)
        with pytest.raises(RetrieverError, match="holds 0 scores for 1 texts"):
            open_reranker(settings)
        service.spoil = lambda answer: answer
        wrong = hosted(model="judge-2", base_url=service.address, attempts=1)
        with pytest.raises(RetrieverError, match=r"gives no scores: .*no such judge"):
            open_reranker(wrong)


def test_it_is_known_by_the_content_of_its_files_and_not_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from typing import Annotated\n\nfrom cluster.settings import Names\n"
        "from retrievers.rerankers.settings import RerankerSettings\n\n\nclass Own(RerankerSettings):\n"
        "    words: Annotated[str, Names.TEXT]\n    weights: Annotated[str, Names.MODEL]\n"
        '    key: Annotated[str, Names.KEY] = "key"\n'
    )
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.pt").write_bytes(b"1")
    for name in ("words.txt", "copy.txt"):
        (tmp_path / name).write_text("sea\n")

    def known(words: str = "words.txt", key: str = "key") -> dict[str, object]:
        values = {"words": f"{tmp_path}/{words}", "weights": f"{tmp_path}/weights", "key": key}
        own: RerankerSettings = TypeAdapter(AnyRerankerSettings).validate_python(
            {"kind": f"{tmp_path}/own.py:Own", **values}, context=REQUIRED
        )
        return own.known_by()

    first = known()
    assert known("copy.txt", "another") == first
    (tmp_path / "weights" / "model.pt").write_bytes(b"22")
    second = known()
    assert second != first
    (tmp_path / "words.txt").write_text("bread\n")
    assert known() != second
