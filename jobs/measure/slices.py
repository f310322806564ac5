"""Slices: the counted keys part by part: by a property of the query, its difficulty, or a column of the log."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.storage.sql import text_literal
from jobs.measure.frame import Frame
from jobs.measure.significance import FEW_QUERIES, Floats
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database
from rewriters.classifier import load_rules
from rewriters.normalise import normalise

THIRDS = ("head", "torso", "tail")
MOST_VALUES = 20  # of a log's column; the keys of rarer values are one slice
OTHERS, NONE = "(others)", "(none)"
_ORDER = ("head", "torso", "tail", "hard", "medium", "easy", "1-2", "3-5", "6 and more")
DIFFICULTY = (
    "difficulty: thirds by the baseline's own value, so that gains of hard and losses of easy queries are in part "
    "regression to the mean"
)

Values = Sequence[str | None]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Slice:
    """The counted keys with one value of a property."""

    name: str  # the property: query_type, frequency, difficulty, words, script, or a column of the log
    value: str
    keys: int
    means: dict[str, tuple[float, float]]  # arm -> mean of the first measure, and its difference to the arm's baseline
    few: bool


def slices_of(run: RunFolder, frame: Frame, names: Sequence[str], baseline: str) -> tuple[list[Slice], list[str]]:
    """Returns the slices, by property and value, and a note on each property that needs one."""
    first, base = frame.values[:, 0], frame.arms.index(baseline)
    slices: list[Slice] = []
    notes = []
    for name in dict.fromkeys(names):
        with database(run, tables=["queries", "selections"]) as connection:
            title, values, note = _values(connection, frame, name, first[base])
        notes += [note] if note else []
        for value, chosen in _parts(values):
            means = first[:, chosen].mean(axis=1)
            figures = {arm: (float(means[n]), float(means[n] - means[base])) for n, arm in enumerate(frame.arms)}
            slices.append(Slice(title, value, len(chosen), figures, len(chosen) < FEW_QUERIES))
    return slices, notes


def _values(connection: duckdb.DuckDBPyConnection, frame: Frame, name: str, base: Floats) -> tuple[str, Values, str | None]:
    """Returns the name of a property as it is shown, each key's value, and a note on it."""

    def looked_up(table: str, value: str) -> Values:
        query = f"SELECT query_id, {value} FROM {table} SEMI JOIN wanted USING (query_id) GROUP BY query_id"
        values = dict(connection.execute(query).fetchall())
        return [values.get(query_id or "") for query_id in frame.query_ids]

    connection.register("wanted", pa.table({"query_id": pa.array([one for one in frame.query_ids if one], pa.string())}))
    own = f'"values"[{text_literal(name)}]'
    kept = f'SELECT 1 FROM queries WHERE map_contains("values", {text_literal(name)}) LIMIT 1'
    queries = [asked.query for asked in frame.asked]
    normalised = [None if query is None else normalise(query) for query in queries]
    title, note = name, None
    values: Values = []
    if name != "query_type" and connection.execute(kept).fetchone():
        values = looked_up("queries", f"any_value({own})")
        note = f"{name}: the log's column of this name" if name in ("difficulty", "frequency", "words", "language") else None
    elif name == "words":
        values = _by(normalised, _words)
    elif name == "language":  # letters tell the script, not the language
        title, values = "script", _by(normalised, script)
        note = "script: of most of a query's letters; the language cannot be told from them"
    elif name == "difficulty":
        values, note = thirds(base), DIFFICULTY
    elif name == "frequency":
        third = traffic_thirds(connection)
        ids = zip(frame.query_ids, frame.counts.tolist(), strict=True)
        values = [third[count] if query_id else None for query_id, count in ids] if third else []
        note = "frequency: head, torso and tail are thirds of the log's traffic"
        note = note if third else "no slices by frequency: every query of the log was asked equally often"
    elif name != "query_type":
        note = f"no slices by {name}: no such column was kept"
    else:
        values = looked_up("queries", "any_value(query_type)")
        if not any(values):  # the type that the first selecting arm chose by
            numbers = " ".join(f"WHEN {text_literal(arm)} THEN {n}" for n, arm in enumerate(frame.arms))
            values = looked_up("selections", f"arg_min(query_type, CASE arm {numbers} END) FILTER (query_type IS NOT NULL)")
        if not any(values):
            values = _by(queries, load_rules("english").type_of)
            note = "query_type: by the rules for English, since no arm selects by it"
    return title, values, note


def _by(texts: Values, value_of: Callable[[str], str]) -> Values:
    return [None if text is None else value_of(text) for text in texts]


def _words(text: str) -> str:
    count = len(text.split())
    return "1-2" if count < 3 else "3-5" if count < 6 else "6 and more"


def script(text: str) -> str:
    """Returns the script of most of a text's letters: Latin, Cyrillic, Han; "none" without letters.

    A script is the first word of a letter's name in Unicode. Han beside kana counts as kana, since only Japanese mixes them.
    """
    if text.isascii():
        return "Latin" if any(letter.isalpha() for letter in text) else "none"
    counts = Counter(_script_of(letter) for letter in text if letter.isalpha())
    if counts["Kana"]:
        counts["Kana"] += counts.pop("Han", 0)
    return max(counts, key=lambda one: (counts[one], one), default="none")


@lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
    first = unicodedata.name(letter, "unnamed").partition(" ")[0]
    return {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "KATAKANA-HIRAGANA": "Kana"}.get(first, first.capitalize())


def thirds(base: Floats) -> Values:
    """Returns hard, medium or easy for each key: thirds by the baseline's value, equal values together."""
    low, high = np.quantile(base, [1 / 3, 2 / 3])
    return ["hard" if value <= low else "medium" if value <= high else "easy" for value in base.tolist()]


def _parts(values: Values) -> list[tuple[str, Places]]:
    """Returns each value and the places of its keys: known values in their order, others the most frequent first."""
    shown = [NONE if value is None else value for value in values]
    counts = Counter(shown)
    ranked = sorted(counts, key=lambda value: (value == NONE, -counts[value], value))
    if set(ranked) <= {*_ORDER, NONE}:
        ranked.sort(key=[*_ORDER, NONE].index)
    if len(ranked) > MOST_VALUES:
        kept = set(ranked[: MOST_VALUES - 1])
        shown = [value if value in kept else OTHERS for value in shown]
        ranked = [*ranked[: MOST_VALUES - 1], OTHERS]
    placed = np.array(shown)
    return [(value, np.flatnonzero(placed == value)) for value in ranked]


def traffic_thirds(connection: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """Counts the times that a query is asked -> head, torso or tail; empty where every query was asked equally often.

    They are the thirds of the whole log's traffic, from the most frequent queries on. Queries of one frequency stay together,
    in the third in which the middle of their traffic lies.
    """
    rows = connection.execute(
        "SELECT log_count, sum(log_count)::DOUBLE FROM queries GROUP BY log_count ORDER BY log_count DESC"
    ).fetchall()
    if len(rows) < 2:
        return {}
    traffic = np.array([asked for _, asked in rows])
    middle = (np.cumsum(traffic) - traffic / 2) / max(1.0, traffic.sum())
    return {count: THIRDS[min(2, int(3 * at))] for (count, _), at in zip(rows, middle, strict=True)}
