"""Nights with guards that begin or cease to find, nights that cannot be read, and quality of nights that did not finish."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.storage import open_storage
from cluster.storage.files import FileStorage
from jobs.job.keys import SCHEMA_VERSION
from jobs.measure.evaluate.evaluate import MEASURES, Evaluation
from jobs.measure.evaluate.stored_evaluation import store_evaluation
from jobs.measure.nights.nights import Nights, nights
from jobs.pages.nights.page import nights_page
from tests.support.jobs.report_runs import Query, RunMaker

MANY = 120


def night(
    place: Path, day: int, flagged: int = 0, strategy: str = "general", many: int = MANY, finished: bool = True, **guards: Any
) -> FileStorage:
    """Writes a night of which the first queries' texts drift."""
    queries = [
        Query(
            f"query {number}", {strategy: f"text {number}"}, {}, {("original", "bm25"): ["d1"]},
            guards={strategy: ["drift"]} if number < flagged else {},
        )
        for number in range(many)
    ]  # fmt: skip
    maker = RunMaker(place)
    maker.storage = FileStorage(str(place / f"small-{day:012x}"))
    run = maker(queries, (strategy,), shard_size=50, finished=finished)
    record = run.record | {"schema_version": SCHEMA_VERSION}
    record["config"]["rewrite"]["guards"] |= guards
    record["starts"][0]["began"] = f"2026-03-{day:02}T01:00:00Z"
    maker.storage.put("run.json", json.dumps(record).encode())
    return maker.storage


def of_guards(found: Nights) -> list[dict[str, tuple[dict[str, int], str]]]:
    return [{one.of.of: (one.of.counts, one.level) for one in of.drifts if one.of.kind == "guard"} for of in found.nights]


def test_a_guard_that_begins_or_ceases_to_find_is_a_shift(tmp_path: Path) -> None:
    night(tmp_path, 1)
    night(tmp_path, 2, flagged=70)
    night(tmp_path, 3)
    found = nights(open_storage(str(tmp_path)), "small", lambda _: None)
    none = {"found": 0, "not found": MANY}
    assert of_guards(found) == [
        {"general: drift": (none, "")},
        {"general: drift": ({"found": 70, "not found": MANY - 70}, "shift")},
        {"general: drift": (none, "shift")},
    ]
    page = nights_page(found)
    assert "No distribution has shifted" not in page
    assert "2026-03-02: texts that guards found, general: drift: PSI" in page


def test_nothing_is_said_of_a_guard_that_a_night_did_not_have(tmp_path: Path) -> None:
    night(tmp_path, 1)
    night(tmp_path, 2, flagged=70, mask=["mail"])
    night(tmp_path, 3, strategy="keyword", mask=["mail"])
    found = of_guards(nights(open_storage(str(tmp_path)), "small", lambda _: None))
    assert found == [{}, {"general: drift": ({"found": 70, "not found": 50}, "")}, {}]


def test_a_finished_night_that_cannot_be_read_is_left_out_with_the_reason(tmp_path: Path) -> None:
    night(tmp_path, 1)
    night(tmp_path, 2)
    path = tmp_path / f"small-{2:012x}" / "run.json"
    record = json.loads(path.read_text())
    record["config"]["fuse"]["k"] = "many"
    path.write_text(json.dumps(record))
    found = nights(open_storage(str(tmp_path)), "small", lambda _: None)
    assert len(found.nights) == 1
    (left,) = found.left_out
    assert left.run_id == path.parent.name
    assert "is of another version of dmqr, or was changed (('fuse', 'k')" in left.why


@pytest.mark.parametrize("last", [None, 2])
@pytest.mark.parametrize(("spoilt", "why"), [(None, "is gone"), (b"PAR1", "was changed")])
def test_a_night_whose_queries_are_gone_is_left_out(tmp_path: Path, last: int | None, spoilt: bytes | None, why: str) -> None:
    for day in (1, 2, 3):
        night(tmp_path, day)
    (path,) = (tmp_path / f"small-{1:012x}" / "queries").iterdir()
    path.unlink()
    if spoilt is not None:
        path.write_bytes(spoilt)
    found = nights(open_storage(str(tmp_path)), "small", lambda _: None, last)
    assert [one.new.queries for one in found.nights] == [MANY, 0]
    assert [(one.run_id, one.why) for one in found.left_out] == [(f"small-{1:012x}", f"queries/{path.name} {why}")]
    assert found.earlier == 0


def test_quality_is_compared_with_the_last_finished_night_alone(tmp_path: Path) -> None:
    """Drawn nights: finished or not, judged by one of two files or not at all."""
    draw = random.Random(11)
    first = [(True, "aaa"), (False, "aaa"), (True, "aaa"), (False, "bbb"), (True, "aaa")]
    drawn = [*first, *((draw.random() < 0.6, draw.choice(["aaa", "bbb", None])) for _ in range(5))]
    expected: list[tuple[float | None, list[str]]] = []
    before: tuple[float, str] | None = None
    for day, (finished, judged) in enumerate(drawn, start=1):
        storage, mean = night(tmp_path, day, many=1, finished=finished), draw.random()
        moved, changed = None, list[str]()
        if judged is not None:
            means = dict.fromkeys(MEASURES, mean)
            store_evaluation(storage, Evaluation(3, 0, means, means, None, queries=3, judgements=judged))
            if finished:
                if before is not None and before[1] == judged:
                    moved = mean - before[0]
                changed = ["judgements"] if before is not None and before[1] != judged else []
                before = mean, judged
        expected.append((moved, changed))
    found = nights(open_storage(str(tmp_path)), "small", lambda _: None)
    assert [(one.moved, one.changed) for one in found.nights] == expected
    (line,) = re.findall(r'<path class="results" d="(.*?)"', nights_page(found))
    assert "".join(re.findall("[ML]", line)).startswith("MMMMM")  # no line leads to a night that did not finish, or from one
