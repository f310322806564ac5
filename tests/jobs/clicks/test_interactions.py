"""Searches and events joined: what counts, what is dropped and why, whatever the files are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import ConfigError, LogError
from jobs.clicks.export import EventChoice
from jobs.clicks.interactions import Interactions, clicked, read_interactions
from jobs.config.config import Config
from rewriters.normalise import filtered_id, query_id
from tests.support.jobs.ubi_exports import (
    NESTED,
    QUERIES,
    Row,
    event,
    search,
    ubi_config,
    write_export,
    write_lines,
    write_parquet,
)

SEARCHES = [
    search("q1", "Red  Shoes", ["a", "b", "c"]),
    search("q2", "red shoes", ["b", "a", "d"]),
    search("q3", "ｒｅｄ shoes", ["a", "b", "c"]),
    search("q4", "blue hat", ["h"]),
]
EVENTS = [event("q1", "a", 1), event("q2", "a", 2), event("q2", "d", 3), event("q4", "h", 1)]
RED = query_id("red shoes")


def found(config: Config, **reading: Any) -> Interactions:
    return read_interactions(config, EventChoice(**reading))


def rows(seen: Interactions) -> dict[tuple[str, str, int], tuple[float, float]]:
    """(query_id, document, place) -> impressions, clicks."""
    cells = seen.cells
    pairs = cells.pairs.to_pylist()
    return {
        (pairs[pair]["query_id"], pairs[pair]["doc_id"], int(rank)): (shown, clicks)
        for pair, rank, shown, clicks in zip(cells.pair, cells.rank, cells.shown, cells.clicked, strict=True)
    }


def test_forms_of_a_query_are_one_and_places_are_those_of_the_lists(tmp_path: Path) -> None:
    seen = found(write_export(tmp_path, SEARCHES, EVENTS))
    assert rows(seen) == {
        (RED, "a", 1): (2, 1), (RED, "a", 2): (1, 1), (RED, "b", 1): (1, 0), (RED, "b", 2): (2, 0), (RED, "c", 3): (2, 0),
        (RED, "d", 3): (1, 1), (query_id("blue hat"), "h", 1): (1, 1),
    }  # fmt: skip
    assert (seen.events, seen.used, seen.searches, seen.dropped, seen.displaced) == (4, 4, 4, {}, 0)


def test_clicks_of_two_tenants_are_of_two_queries(tmp_path: Path) -> None:
    asked = [search(f"q{tenant}", "red", ["a"]) | {"tenant": tenant} for tenant in ("north", "south")]
    write_lines(tmp_path / "ubi_queries.ndjson", asked)
    write_lines(tmp_path / "ubi_events.ndjson", [event("qnorth", "a")])
    config = ubi_config(tmp_path)
    retrieve = config.retrieve.model_copy(update={"filters": {"shop": "tenant"}})
    assert clicked(config.model_copy(update={"retrieve": retrieve})) == {
        filtered_id(bytes.fromhex(query_id("red")), {"shop": "north"}).hex(): {"a"}
    }


def test_a_query_after_earlier_turns_is_another(tmp_path: Path) -> None:
    after = [search("q1", "red", ["a"]) | {"turns": ["Shoes?"]}, search("q2", "red", ["a"])]
    write_lines(tmp_path / "ubi_queries.ndjson", after)
    write_lines(tmp_path / "ubi_events.ndjson", [event("q1", "a")])
    seen = found(ubi_config(tmp_path, context_column="turns"))
    assert rows(seen) == {(query_id("red", "shoes?"), "a", 1): (1, 1), (query_id("red"), "a", 1): (1, 0)}


@pytest.mark.parametrize("kind", ["wrapped", "packed", "parquet", "text", "flat", "old names"])
def test_every_form_of_file_reads_the_same(tmp_path: Path, kind: str) -> None:
    expected = found(write_export(tmp_path / "lines", SEARCHES, EVENTS))
    folder = tmp_path / kind
    if kind in ("wrapped", "packed"):
        ending = "json" if kind == "wrapped" else "jsonl.gz"
        write_lines(folder / f"ubi_queries.{ending}", SEARCHES, wrapped=kind == "wrapped")
        write_lines(folder / f"ubi_events.{ending}", EVENTS, wrapped=kind == "wrapped")
    elif kind == "old names":
        old = [{**row, "query_response_object_ids": row["query_response_hit_ids"]} for row in SEARCHES]
        write_lines(
            folder / "ubi_queries.json", [{k: v for k, v in row.items() if k != "query_response_hit_ids"} for row in old]
        )
        attributes = [json.loads(json.dumps(row["event_attributes"])) for row in EVENTS]
        for one in attributes:
            one["position"]["ordinal"] = {"index": one["position"]["ordinal"]}
        events = [row | {"event_attributes": one} for row, one in zip(EVENTS, attributes, strict=True)]
        write_lines(folder / "ubi_events.json", events)
    else:
        write_parquet(folder / "ubi_queries" / "0.parquet", SEARCHES[:2], QUERIES)
        write_parquet(folder / "ubi_queries" / "1.parquet", SEARCHES[2:], QUERIES)
        (folder / "ubi_events").mkdir()
        whole = pa.Table.from_pylist(EVENTS, NESTED)
        if kind == "text":
            texts = pa.array([json.dumps(row["event_attributes"]) for row in EVENTS])
            whole = whole.set_column(3, "event_attributes", texts)
        elif kind == "flat":
            documents = [row["event_attributes"]["object"]["object_id"] for row in EVENTS]
            places = [row["event_attributes"]["position"]["ordinal"] for row in EVENTS]
            whole = whole.drop_columns("event_attributes").append_column("event_attributes.object.object_id", [documents])
            whole = whole.append_column("event_attributes.position.ordinal", [places])
        pq.write_table(whole, folder / "ubi_events" / "0.parquet")
    seen = found(ubi_config(folder))
    assert rows(seen) == rows(expected)
    assert (seen.events, seen.used, seen.displaced) == (4, 4, 0)


def test_why_clicks_are_dropped(tmp_path: Path) -> None:
    searches = [
        *SEARCHES, search("blank", " "), search("twice", "one"), search("twice", "two"), search("bare", "bare", None),
        *(search(f"r{n}", "robot", client="crawler") for n in range(9)),
    ]  # fmt: skip
    events = [
        *EVENTS, event("q1", "a", 1), event("q1", "a", 1), event(None, "a"), event("", "a"), event("q1", None),
        event("yesterday", "a"), event("blank", "a"), event("twice", "a"), event("r3", "a"), event("q1", "zzz"),
        event("bare", "a"), event("q1", "b", action="view"), event("q1", None, action="login"),
    ]  # fmt: skip
    seen = found(write_export(tmp_path, searches, events), most_queries=8)
    assert seen.dropped == {
        "no_query": 2, "no_document": 1, "unknown_query": 1, "rejected": 1, "ambiguous": 1, "robot": 1, "not_shown": 2,
        "duplicate": 2,
    }  # fmt: skip
    assert (seen.used, seen.other_actions, seen.events) == (4, 2, len(events))
    assert (seen.searches, seen.left_out) == (4, {"rejected": 1, "ambiguous": 1, "robot": 9, "no_list": 1})
    assert rows(seen) == rows(found(write_export(tmp_path / "clean", SEARCHES, EVENTS)))


def test_robots_are_counted_by_day_and_nobody_is_one_without_a_client(tmp_path: Path) -> None:
    days = [search(f"d{n}", "x", client="busy") | {"timestamp": f"2026-11-{n:02d}T08:00:00Z"} for n in range(1, 10)]
    millis = [search(f"m{n}", "x", client="quick") | {"timestamp": 1795451070204 + n} for n in range(9)]
    nobody = [search(f"n{n}", "x", client="") for n in range(9)]
    config = write_export(tmp_path, [*days, *millis, *nobody], [event("d1", "a"), event("n1", "a")])
    assert found(config, most_queries=8).left_out == {"robot": 9}
    assert found(config, most_queries=0).left_out == {}
    assert found(config, most_queries=8).used == 2


def test_pages_of_a_search_are_no_searches_of_a_robot(tmp_path: Path) -> None:
    pages = [search(f"q{n}", "x", ["a", "b"], client="pages", second=page) for n in range(4) for page in range(3)]
    seen = found(write_export(tmp_path, pages, [event(f"q{n}", "b") for n in range(4)]), most_queries=8)
    assert (seen.left_out, seen.used) == ({}, 4)


def test_answers_to_one_search_are_its_pages_in_order_of_time(tmp_path: Path) -> None:
    pages = [
        search("q1", "x", ["c", "d"], second=5), search("q1", "x", ["a", "b"], second=1),
        search("q1", "x", ["a", "b"], second=9), search("q1", "x", ["d", "e"], second=20),
    ]  # fmt: skip
    seen = found(write_export(tmp_path, pages, [event("q1", "d", 2), event("q1", "e")]))
    places = {document: (place, counts) for (_, document, place), counts in rows(seen).items()}
    assert places == {"a": (1, (1, 0)), "b": (2, (1, 0)), "c": (3, (1, 0)), "d": (4, (1, 1)), "e": (5, (1, 1))}
    assert seen.displaced == 1


def test_a_document_that_stands_twice_counts_where_it_stands_first(tmp_path: Path) -> None:
    seen = found(write_export(tmp_path, [search("q1", "x", ["a", "b", "a", "c"])], [event("q1", "a"), event("q1", "c")]))
    assert {key[1:]: counts for key, counts in rows(seen).items()} == {("a", 1): (1, 1), ("b", 2): (1, 0), ("c", 3): (1, 1)}


def test_only_the_first_places_count(tmp_path: Path) -> None:
    seen = found(write_export(tmp_path, SEARCHES, EVENTS), deepest=2)
    assert {rank for _, _, rank in rows(seen)} == {1, 2}
    assert (seen.used, seen.dropped) == (3, {"not_shown": 1})


@pytest.mark.parametrize("first", [0, 1])
def test_without_lists_events_of_impressions_tell_what_was_shown(tmp_path: Path, first: int) -> None:
    bare = [search("q1", "x", None), search("q2", "x", None)]
    events = [
        event(query, document, place + first, "impression") for query in ("q1", "q2") for place, document in enumerate("ab")
    ]
    seen = found(write_export(tmp_path, bare, [*events, events[0], event("q2", "b", 1 + first), event("q2", "c", 2 + first)]))
    assert {key[1:]: counts for key, counts in rows(seen).items()} == {("a", 1): (2, 0), ("b", 2): (2, 1)}
    assert (seen.dropped, seen.other_actions, seen.searches) == ({"not_shown": 1}, 5, 2)


def test_names_of_clicks_can_be_chosen(tmp_path: Path) -> None:
    events = [event("q1", "a", action="Click"), event("q1", "b", action="add_to_cart"), event("q2", "d", action="item_click")]
    config = write_export(tmp_path, SEARCHES, events)
    assert (found(config).used, found(config).other_actions) == (2, 1)
    assert found(config, actions=("add_to_cart",)).used == 1
    with pytest.raises(LogError, match=r"no click can be used \(purchase\): no event is of these actions") as error:
        found(config, actions=("purchase",))
    assert error.value.code == "log-clicks"


def test_clicked_documents_by_query(tmp_path: Path) -> None:
    config = write_export(tmp_path, SEARCHES, [*EVENTS, event("q1", "zzz"), event("yesterday", "a"), event(None, "b")])
    assert clicked(config) == {RED: {"a", "d", "zzz"}, query_id("blue hat"): {"h"}}
    plain = config.model_copy(update={"log": config.log.model_copy(update={"format": "parquet"})})
    assert clicked(plain) == {}
    with pytest.raises(ConfigError, match="clicks are read from logs of format ubi"):
        found(plain)


@pytest.mark.parametrize(
    ("searches", "events", "words"),
    [
        ([{"user_query": "x"}], EVENTS, "no field 'query_id' (log.id_column)"),
        (SEARCHES, [{"query_id": "q1", "timestamp": "x"}], "no field 'action_name' of UBI 1.3 (found: query_id, timestamp)"),
        (SEARCHES, [{"action_name": "click", "query_id": "q1"}], "no field 'event_attributes.object.object_id' of UBI 1.3"),
        (SEARCHES, [], "no rows in "),
        (SEARCHES, [{"index": {"_index": "ubi_events"}}, *EVENTS], "line 1: an action of the bulk API"),
        ([search("q1", "x", None)], [event("q1", "a")], "no click can be used (click, click_through, item_click): 1 on a "),
    ],
)
def test_what_is_missing_is_said_in_a_line(tmp_path: Path, searches: list[Row], events: list[Row], words: str) -> None:
    config = write_export(tmp_path, searches, events)
    if searches != SEARCHES and "query_id" not in searches[0]:
        config = ubi_config(tmp_path, id_column=None)
    with pytest.raises(LogError) as error:
        found(config)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_line_that_breaks_off_is_named(tmp_path: Path) -> None:
    config = write_export(tmp_path, SEARCHES, EVENTS * 400)
    with (tmp_path / "ubi_events.ndjson").open("a") as file:
        file.write('{"action_name": "cli')
    with pytest.raises(LogError, match=r"the export cannot be read: .*ubi_events\.ndjson") as error:
        found(config)
    assert error.value.code == "log-unreadable"


NAMES = st.sampled_from(["q0", "q1", "q2", "gone", None])


@pytest.mark.slow
@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lists=st.lists(st.lists(st.sampled_from("abcd"), unique=True, max_size=4), min_size=3, max_size=3),
    clicks=st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", "e", None])), max_size=12),
)
def test_every_click_is_used_or_dropped(
    tmp_path: Path, lists: list[list[str]], clicks: list[tuple[str | None, str | None]]
) -> None:
    texts = ["x", "X ", "y"]
    searches = [search(f"q{n}", text, hits) for n, (text, hits) in enumerate(zip(texts, lists, strict=True))]
    config = write_export(
        tmp_path, [*searches, search("always", "y", ["z"])], [*(event(*one) for one in clicks), event("always", "z")]
    )
    seen = found(config)
    assert seen.events == seen.used + sum(seen.dropped.values()) + seen.other_actions == len(clicks) + 1
    expected: Counter[tuple[str, str, int]] = Counter()
    for name, document in {one for one in clicks if one[0] not in ("gone", None)}:
        number = int(str(name)[1:])
        if document in lists[number]:
            expected[query_id(texts[number]), str(document), lists[number].index(str(document)) + 1] += 1
    expected[query_id("y"), "z", 1] += 1
    assert {key: clicks for key, (_, clicks) in rows(seen).items() if clicks} == expected
    assert sum(shown for shown, _ in rows(seen).values()) == sum(map(len, lists)) + 1
