"""Dedup where queries are filtered: the same words with another value are another query, and a row without one is rejected."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LogError
from cluster.storage import open_storage
from jobs.log import dedup as dedup_module
from jobs.log import rows as rows_module
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import find_log_files
from rewriters.normalise import normalise, query_id

Row = dict[str, Any]
COLUMNS = LogColumns(
    "query", "id", None, 9, context_column="turns", values=("market", "tier"), filters=(("shop", "market"), ("tier", "tier"))
)
SCHEMA = pa.schema(
    [("id", pa.string()), ("query", pa.string()), ("turns", pa.string()), ("market", pa.string()), ("tier", pa.int8())]
)
row = st.tuples(
    st.sampled_from(["a", "A ", "b", "", None, "too long for it"]), st.sampled_from([None, "x", "X"]),
    st.sampled_from([None, "de", "DE", "", "d\ne"]), st.sampled_from([None, 1, 2]),
)  # fmt: skip


def made(folder: Path, files: list[list[tuple[Any, ...]]]) -> dict[str, list[Row]]:
    for number, rows in enumerate(files):
        path = folder / "log" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = [{"id": f"{number}-{place}"} | dict(zip(SCHEMA.names[1:], one, strict=True)) for place, one in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(named, SCHEMA), path)
    found = find_log_files(str(folder / "log"))
    check_log(found, COLUMNS)
    summary = dedup(found, COLUMNS, open_storage(str(folder / "out")), 2)
    return {
        table: [one for file in files for one in pq.read_table(folder / "out" / file.key).to_pylist(maps_as_pydicts="strict")]
        for table, files in summary.tables.items()
    }


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 6)
@given(st.lists(st.lists(row, min_size=1, max_size=15), min_size=1, max_size=3), st.sampled_from([1, 3, 1000]))
def test_it_equals_a_plain_python_oracle(files: list[list[tuple[Any, ...]]], limit: int) -> None:
    queries: dict[str, Counter[str]] = defaultdict(Counter)
    query_map, reasons, values = [], [], {}
    for number, rows in enumerate(files):
        for place, (raw, said, market, tier) in enumerate(rows):
            log_id = f"{number}-{place}"
            reason = None
            if not raw:
                reason = "empty"
            elif len(raw) > 9:
                reason = "too_long"
            elif market is None or tier is None:
                reason = "no_filter"
            if reason:
                reasons.append((log_id, reason))
                query_map.append((log_id, None))
                continue
            of = query_id(raw, said, {"shop": market, "tier": str(tier)})
            queries[of][raw] += 1
            values[of] = {"market": market, "tier": str(tier)}
            query_map.append((log_id, of))
    if not queries:
        return
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "BATCH_ROWS", limit)
        patch.setattr(dedup_module, "PART_ROWS", limit)
        found = made(Path(folder), files)
    assert [(one["log_id"], one["query_id"]) for one in found["query_map"]] == query_map
    assert [(one["log_id"], one["reason"]) for one in found["errors"]] == reasons
    assert {one["query_id"]: (one["log_count"], one["values"]) for one in found["queries"]} == {
        of: (sum(forms.values()), values[of]) for of, forms in queries.items()
    }
    for one in found["queries"]:
        forms = queries[one["query_id"]]
        assert one["query"] == min(forms, key=lambda raw: (-forms[raw], raw))
        assert one["normalised"] == normalise(one["query"])


def test_no_other_query_has_the_id_of_a_filtered_one() -> None:
    plain, filtered = query_id("tea"), query_id("tea", None, {"shop": "a"})
    assert query_id("tea", None, {}) == plain != filtered
    told = {
        query_id("tea", None, only) for only in ({"shop": "a"}, {"shop": "A"}, {"shop": "a "}, {"a": "shop"}, {"shop": "b"})
    }
    assert len(told) == 5
    assert query_id("tea", None, {"b": "1", "a": "2"}) == query_id("tea", None, {"a": "2", "b": "1"})
    assert query_id(plain, '\n{"shop": "a"}') != filtered  # white space of a context collapses


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([["a"], ["b"]]), "column 'market' .retrieve.filters. holds list"),
        (pa.array([0.5, 1.5]), "column 'market' .retrieve.filters. holds double, wanted text"),
        (None, "no column 'market' .retrieve.filters."),
    ],
)
def test_a_column_that_cannot_filter_is_refused(column: pa.Array | None, words: str, tmp_path: Path) -> None:
    table = {"query": ["a", "b"]} | ({} if column is None else {"market": column})
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = LogColumns("query", values=("market",), filters=(("shop", "market"),))
    with pytest.raises(LogError, match=words):
        check_log(find_log_files(str(tmp_path / "log.parquet")), columns)


def test_the_columns_of_filters_are_read() -> None:
    columns = LogColumns("query", values=("market",), filters=(("tenant", "shop"), ("lang", "market")))
    assert columns.values == ("market", "shop")
