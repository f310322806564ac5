"""Dedup equals a plain-Python oracle on random logs, whatever the files, columns and internal limits."""

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.log import dedup as dedup_module
from jobs.log import parts as task_module
from jobs.log import rows as rows_module
from jobs.log.check import LogColumns
from rewriters.normalise import normalise, query_id
from tests.support.jobs.logs import deduped, refused

VARIANTS = [
    *("Jaguar", "jaguar", " JAGUAR\t", "ｊａｇｕａｒ", "jaguar speed", "jaguar \n speed", "JAGUAR  SPEED", "jaguar\u00a0speed"),
    *("é", "e\u0301", "É", "straße", "STRASSE", "\u0130stanbul", "ﬁsh", "\u51a0\u72b6\u75c5\u6bd2", "👩‍👩‍👧 emoji"),
    *("\u0301", "a\x00b", "a\x00", "a", "", " ", "\u3000", "\t\n", "\x00", "\u200b", "x" * 12, "y" * 13, "ab " * 9, None, None),
]  # fmt: skip
texts = st.one_of(st.sampled_from(VARIANTS), st.text(max_size=5))
turns = st.none() | st.lists(
    st.sampled_from([None, "", " \u3000", "x", "X", "x ", "y", "\x00", "x\ny", "ß", "long " * 9]), max_size=3
)
items = st.sampled_from([None, "", "de", "DE", "is", "\x00", "\x00b", "\U0001f600", "\uffff"])
TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@st.composite
def logs(draw: st.DrawFn) -> dict[str, Any]:
    files = draw(st.lists(st.lists(texts, max_size=25), min_size=1, max_size=3))
    sizes = [len(rows) for rows in files]
    ids = draw(st.sampled_from([None, "int", "string", "string with nulls"]))

    def column(values: st.SearchStrategy[Any]) -> list[list[Any]] | None:
        return [draw(st.lists(values, min_size=n, max_size=n)) for n in sizes] if draw(st.booleans()) else None

    return {
        "files": files,
        "ids": ids,
        "counts": column(st.none() | st.integers(0, 4)),
        "turns": column(turns),
        "market": column(items),
        "type": draw(st.sampled_from(TYPES)),
        "row_group_size": draw(st.integers(1, 12)),
        "use_dictionary": draw(st.booleans()),
        "batch": draw(st.integers(1, 9)),
        "piece": draw(st.sampled_from([1, 500, 10**6])),
        "part": draw(st.sampled_from([1, 10, 1000])),
        "range": draw(st.sampled_from([2, 7, 1000])),
        "shard_size": draw(st.integers(1, 5)),
    }


def id_of(kind: str, file: int, row: int) -> int | str | None:
    if kind == "int":
        return file * 1000 + row
    return None if kind == "string with nulls" and row % 3 == 1 else f"id-{file}-{row}"


def oracle(log: dict[str, Any], max_chars: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[Any, ...]]]:
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    more: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    query_map, rejected = [], []
    for file, rows in enumerate(log["files"]):
        for row, raw in enumerate(rows):
            own = id_of(log["ids"], file, row) if log["ids"] else None
            log_id = f"part-{file}.parquet#{row}" if own is None else str(own)
            count = log["counts"][file][row] if log["counts"] else 1
            reason = None
            if raw is None or not raw.split():
                reason = "empty"
            elif len(raw) > max_chars:
                reason = "too_long"
            said = log["turns"][file][row] if log["turns"] else None
            context = "\n".join(turn for turn in said or () if turn is not None)[-20:]
            own_id = None if reason else query_id(raw or "", context)
            query_map.append({"log_id": log_id, "query_id": own_id})
            if own_id is None:
                rejected.append((log_id, reason, raw))
                continue
            times = 1 if count is None else count
            forms[own_id][raw] += times
            market = log["market"][file][row] if log["market"] else None
            for name, value in (("context", context if normalise(context) else None), ("market", market)):
                if value is not None:
                    more[own_id, name][value] += times
    chosen = {key: min(values, key=lambda one: (-values[one], one)) for key, values in more.items()}
    queries = [
        {"query_id": own, "query": shown, "normalised": normalise(shown), "log_count": sum(c.values())}
        | ({"context": chosen.get((own, "context"))} if log["turns"] else {})
        | ({"values": {"market": chosen.get((own, "market"))}} if log["market"] else {})
        for own, c in sorted(forms.items())
        for shown in [min(c, key=lambda raw: (-c[raw], raw))]
    ]
    return queries, query_map, rejected


def most_asked(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The head, in order of the ids: as many of those asked most often as hold half of the traffic."""
    if len({one["log_count"] for one in queries}) < 2:
        return []
    traffic, covered, head = sum(one["log_count"] for one in queries), 0, []
    for one in sorted(queries, key=lambda one: (-one["log_count"], one["query_id"])):
        if covered >= traffic / 2:
            break
        covered += one["log_count"]
        head.append(one)
    return sorted(head, key=lambda one: str(one["query_id"]))


@settings(max_examples=settings.default.max_examples // 6)
@given(logs())
def test_dedup_equals_a_plain_python_oracle(log: dict[str, Any]) -> None:
    context, values = "turns" if log["turns"] else None, ("market",) if log["market"] else ()
    columns = LogColumns("query", "id" if log["ids"] else None, "n" if log["counts"] else None, 12, context, values)
    queries, query_map, rejected = oracle(log, 12)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "BATCH_ROWS", log["batch"])
        patch.setattr(rows_module, "PIECE_BYTES", log["piece"])
        patch.setattr(rows_module, "MAX_CONTEXT_CHARS", 20)
        patch.setattr(dedup_module, "PART_ROWS", log["part"])
        patch.setattr(dedup_module, "RANGE_ROWS", log["range"])
        patch.setattr(rows_module, "WIDE_BATCH_ROWS", log["batch"])
        patch.setitem(task_module.ROW_GROUP_BYTES, "plan", 10 * log["range"])
        patch.setitem(task_module.OPTIONS["plan"], "row_group_size", log["batch"])
        root, out = Path(folder, "log"), Path(folder, "out")
        for file, rows in enumerate(log["files"]):
            table = {"query": pa.array(rows, pa.string()).cast(log["type"])}
            if log["ids"]:
                ids = [id_of(log["ids"], file, row) for row in range(len(rows))]
                table["id"] = pa.array(ids, pa.int32() if log["ids"] == "int" else pa.string())
            if log["counts"]:
                table["n"] = pa.array(log["counts"][file], pa.int16())
            for name, kind in (("turns", pa.list_(pa.string())), ("market", pa.string())):
                if log[name]:
                    table[name] = pa.array(log[name][file], kind)
            path = root / f"part-{file}.parquet"
            root.mkdir(exist_ok=True)
            options = {"row_group_size": log["row_group_size"], "use_dictionary": log["use_dictionary"]}
            pq.write_table(pa.table(table), path, **options)
        if not queries:
            refused(str(root), columns)
            return
        summary, found = deduped(str(root), out, columns, log["shard_size"])
        sizes = {
            (file.key, group): pq.ParquetFile(out / file.key).metadata.row_group(group).num_rows
            for file in summary.tables["queries"]
            for group in range(pq.ParquetFile(out / file.key).num_row_groups)
        }
    head = most_asked(queries)
    assert found["queries"] == [*head, *(one for one in queries if one not in head)]
    assert sum(shard.rows for shard in summary.shards[: summary.head]) == len(head)
    assert found["query_map"] == query_map
    assert [(r["log_id"], r["reason"], r["raw"]) for r in found["errors"]] == rejected
    counts, traffic = Counter(f"rejected_{reason}" for _, reason, _ in rejected), sum(one["log_count"] for one in queries)
    counts.update(rejected=len(rejected), log_rows=len(query_map), queries=len(queries), traffic=traffic)
    assert counts.items() <= summary.counts.items()
    assert [((shard.key, shard.row_group), shard.rows) for shard in summary.shards] == list(sizes.items())
    assert max(sizes.values()) <= log["shard_size"]
