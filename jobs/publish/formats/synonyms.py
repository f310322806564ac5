r"""Synonyms in Solr's format: `synonyms.txt`, and as the body of `PUT _synonyms/NAME` of Elasticsearch `synonyms.json`.

    notebook cheap => notebook cheap, affordable laptop

The queries that are asked most, each with its short rewrites; the arrow has rewrites found for the query, not the query for
them. `\` escapes a comma, an arrow, a `#` at the beginning of a line, and itself; a control character becomes a space, since
Lucene parts words by U+0000.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import ConfigError
from jobs.publish.formats.rule_texts import has_words, is_query_alone, is_short, repeats_query
from jobs.publish.rows import TRAFFIC, LookUpRows
from jobs.runs.folder import RunFolder

FILE, BODY = "synonyms.txt", "synonyms.json"
OPTION = "synonym_rules"
MOST_RULES = 10_000
"""Default of `OPTION`: so many every cluster with synonym sets takes."""
ROWS = ("left_out_context_or_filters", "left_out_without_words", "left_out_no_rewrites", "left_out_asked_less")
"""Rows without a rule: asked with earlier turns or filters; without a letter or digit; without short rewrites that have one;
above the number of rules, since others are asked more."""
REWRITES = ("rewrites_of_weight_0", "rewrites_as_the_query", "rewrites_without_words", "rewrites_too_long")
COUNTED = ("rules", "synonyms", "traffic", *ROWS, *REWRITES)
"""What is counted; `traffic` is how often the queries of the rules were asked."""

_ESCAPED = re.compile(r"[\\,]|=>|^#")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BATCH = 4_096  # rows at a time


class SynonymRule(NamedTuple):
    """A rule and how often its query was asked; those that are kept longer compare as greater.

    Attributes:
        log_count: How often it was asked.
        last: The key as a negative number: of queries that were asked equally often, those of lesser keys are kept.
        key: Of the row.
        line: In Solr's format.
        synonyms: How many rewrites it has.
    """

    log_count: int
    last: int
    key: str
    line: str
    synonyms: int


class SynonymsFormat:
    """The short rewrites of the queries that are asked most, as synonyms."""

    name = "synonyms"
    defaults: Mapping[str, Any] = {OPTION: MOST_RULES}

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes the rules, the most asked first; returns what `COUNTED` says."""
        if (most := options[OPTION]) < 1:
            raise ConfigError("argument", f"--synonym-rules {most}: at least one rule; or leave synonyms out of --as")
        counts = Counter(dict.fromkeys(COUNTED, 0))
        head = head_of(rows, most, counts)
        with (folder / FILE).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{rule.line}\n" for rule in head)
        (folder / BODY).write_text(json.dumps(body_of(head), ensure_ascii=False), encoding="utf-8")
        return dict(counts)


def head_of(rows: LookUpRows, most: int, counts: Counter[str]) -> list[SynonymRule]:
    """Returns the rules of the queries that are asked most, at most so many, in this order; adds to what `COUNTED` says."""
    head: list[SynonymRule] = []
    for batch in rows.batches(_BATCH, traffic=True):
        for row in batch.to_pylist():
            if (rule := rule_of(row, counts)) is None:
                continue
            if len(head) < most:
                heapq.heappush(head, rule)
            else:
                heapq.heappushpop(head, rule)
                counts["left_out_asked_less"] += 1
    counts.update(rules=len(head), synonyms=sum(one.synonyms for one in head), traffic=sum(one.log_count for one in head))
    return sorted(head, reverse=True)


def rule_of(row: Mapping[str, Any], counts: Counter[str]) -> SynonymRule | None:
    """Returns the rule of a row; None: it has none, and `counts` has why."""
    if not is_query_alone(row):
        counts["left_out_context_or_filters"] += 1
        return None
    if not has_words(row["query"]):
        counts["left_out_without_words"] += 1
        return None
    texts: dict[str, None] = {}
    for rewrite in row["rewrites"]:
        if not rewrite["weight"] > 0:
            counts["rewrites_of_weight_0"] += 1
        elif not is_short(rewrite):
            counts["rewrites_too_long"] += 1
        elif repeats_query(row, rewrite):
            counts["rewrites_as_the_query"] += 1
        elif not has_words(rewrite["text"]):
            counts["rewrites_without_words"] += 1
        else:
            texts[escaped(rewrite["text"])] = None
    if not texts:
        counts["left_out_no_rewrites"] += 1
        return None
    query = escaped(row["query"])
    line = f"{query} => {', '.join([query, *texts])}"
    return SynonymRule(row[TRAFFIC.name], -int(row["key"], 16), row["key"], line, len(texts))


def escaped(text: str) -> str:
    """Returns a text as a line has it, with single spaces."""
    return _ESCAPED.sub(r"\\\g<0>", " ".join(_CONTROL.sub(" ", text).split()))


def body_of(rules: list[SynonymRule]) -> dict[str, Any]:
    """Returns the body of a request that puts the rules as a set into Elasticsearch."""
    return {"synonyms_set": [{"id": rule.key, "synonyms": rule.line} for rule in rules]}


FORMAT = SynonymsFormat()
