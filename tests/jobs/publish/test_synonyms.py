"""Synonyms in Solr's format: the head alone, read back by the grammar and by Lucene itself."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.publish.choice import RowChoice
from jobs.publish.formats.rule_texts import SHORT_WORDS, has_words
from jobs.publish.formats.synonyms import FORMAT, ROWS
from jobs.publish.rows import LOOK_UP, TRAFFIC, LookUpRows
from jobs.runs.folder import RunFolder
from rewriters.normalise import normalise, query_id
from tests.support.jobs.lucene import LuceneSynonyms

HOSTILE = [
    "\\", ",", "=>", "=", ">", "#", '"', "@", "{", ":", "a", "word", "notebook", "c#", "c++", "a,b", "a=>b", "don't", "½", "ß",
    "😀", "שלום", "北京", "\u202eabc", "\ufeff", "\x00", "\\,", "\\=>", "!",
]  # fmt: skip
NO_RUN = cast(RunFolder, None)  # the format asks the rows alone


def row_of(query: str, *texts: str, asked: int = 1, **more: Any) -> dict[str, Any]:
    words = normalise(query)
    rewrites = [
        {"strategy": "keyword", "position": number, "text": text, "weight": 1.0, "search_as": "query"}
        for number, text in enumerate(texts, start=1)
    ]
    bare = {"key": query_id(words), "query": words, "context": None, "bucket": 0, "rewrites": rewrites, "hits": []}
    return bare | {"digest": "", "version": "v", TRAFFIC.name: asked} | more


def written(rows: list[dict[str, Any]], folder: Path, most: int = 10_000) -> tuple[list[str], dict[str, int]]:
    """Has the format write the rows; returns the lines and what was counted."""
    rows = sorted(rows, key=lambda row: row["key"])
    pq.write_table(pa.Table.from_pylist(rows, LOOK_UP.append(TRAFFIC)), folder / "look_up.parquet")
    look_up = LookUpRows(folder / "look_up.parquet", "v", Counter(rows=len(rows)), Counter(), RowChoice())
    to = folder / "out"
    to.mkdir(exist_ok=True)
    counts = FORMAT.write(NO_RUN, look_up, to, {"synonym_rules": most})
    lines = (to / "synonyms.txt").read_text(encoding="utf-8").split("\n")[:-1]
    body = json.loads((to / "synonyms.json").read_text(encoding="utf-8"))["synonyms_set"]
    assert [one["synonyms"] for one in body] == lines
    return lines, dict(counts)


def read_line(line: str) -> tuple[str, list[str]]:
    """What a line says by Solr's grammar: what is replaced, and by what."""
    assert not line.startswith("#")
    sides, at = [[""]], 0
    while at < len(line):
        if line[at] == "\\":
            sides[-1][-1] += line[at + 1]
            at += 2
        elif line.startswith("=>", at):
            sides.append([""])
            at += 2
        elif line[at] == ",":
            sides[-1].append("")
            at += 1
        else:
            sides[-1][-1] += line[at]
            at += 1
    ((left,), right) = sides
    return left.strip(" "), [one.strip(" ") for one in right]


def plain(text: str) -> str:
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text).split())


def drawn_text(rng: random.Random, most: int) -> str:
    return "".join(rng.choice(HOSTILE) + rng.choice(["", " ", " "]) for _ in range(rng.randint(1, most))).strip()


def drawn_rows(number: int) -> list[dict[str, Any]]:
    rng, rows = random.Random(number), {}
    while len(rows) < number:
        texts = [drawn_text(rng, rng.choice([3, 9])) for _ in range(rng.randint(0, 3))]
        row = row_of(drawn_text(rng, 6), *texts, asked=rng.randint(1, 50))
        rows[row["key"]] = row
    return list(rows.values())


def expected(row: dict[str, Any]) -> list[str]:
    """The rewrites that a row's rule has, found apart."""
    texts = [one["text"] for one in row["rewrites"]]
    kept = [text for text in texts if len(text.split()) <= SHORT_WORDS and has_words(text) and normalise(text) != row["query"]]
    return list(dict.fromkeys(map(plain, kept))) if has_words(row["query"]) else []


@pytest.mark.parametrize("most", [1, 700, 10_000])
def test_the_head_is_read_back(tmp_path: Path, most: int) -> None:
    rows = drawn_rows(3_000)
    lines, counts = written(rows, tmp_path, most)
    whole = sorted((row for row in rows if expected(row)), key=lambda row: (-row[TRAFFIC.name], row["key"]))
    assert len(whole) > 1_000
    assert [read_line(line) for line in lines] == [
        (plain(row["query"]), [plain(row["query"]), *expected(row)]) for row in whole[:most]
    ]
    assert counts["rules"] == len(lines)
    assert counts["traffic"] == sum(row[TRAFFIC.name] for row in whole[:most])
    assert counts["synonyms"] == sum(len(expected(row)) for row in whole[:most])
    assert counts["left_out_asked_less"] == max(0, len(whole) - most)
    assert sum(counts[reason] for reason in ROWS) == len(rows) - len(lines)


@pytest.mark.slow
def test_lucene_makes_of_a_query_its_rewrites(tmp_path: Path) -> None:
    lucene = LuceneSynonyms(tmp_path)
    rows = drawn_rows(3_000)
    lines, counts = written(rows, tmp_path)
    made: dict[str, dict[str, None]] = {}  # two queries may differ in control characters alone
    for row in rows:
        if texts := expected(row):
            made.setdefault(plain(row["query"]), {}).update(dict.fromkeys([plain(row["query"]), *texts]))
    assert counts["rules"] == len(lines) >= len(made) > 1_000
    for texts, tokens in zip(made.values(), lucene.tokens(tmp_path / "out" / "synonyms.txt", made), strict=True):
        assert Counter(tokens) == Counter(word for text in texts for word in text.split(" "))


def test_what_has_no_rule_is_counted(tmp_path: Path) -> None:
    rows = [
        row_of("Notebook cheap", "affordable laptop", "notebook  CHEAP", "a laptop that does not cost much", "!?", asked=7),
        row_of("on sundays", "sunday trains", key=query_id("on sundays", "any trains?")),
        row_of("???", "question marks"),
        row_of("fish", "a text of more than five words"),
        row_of("bird", "one that sings", asked=3),
    ]
    rows[0]["rewrites"].append(rows[0]["rewrites"][0] | {"weight": 0.0})
    rows[4]["rewrites"].append(rows[4]["rewrites"][0] | {"search_as": "passage", "text": "a passage"})
    lines, counts = written(rows, tmp_path)
    assert lines == ["notebook cheap => notebook cheap, affordable laptop", "bird => bird, one that sings"]
    assert {name: n for name, n in counts.items() if n} == {
        "rules": 2, "synonyms": 2, "traffic": 10, "left_out_context_or_filters": 1, "left_out_without_words": 1,
        "left_out_no_rewrites": 1, "rewrites_of_weight_0": 1, "rewrites_as_the_query": 1, "rewrites_without_words": 1,
        "rewrites_too_long": 3,
    }  # fmt: skip


def test_no_rules_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--synonym-rules 0: at least one rule; or leave synonyms out of --as"):
        written([row_of("bird", "one that sings")], tmp_path, most=0)
