r"""Rules for Querqy's common rules rewriter: `querqy_rules.txt`, a rule for each query that has rewrites.

    "notebook cheap" =>
      SYNONYM(0.8): affordable laptop
      UP(0.05): lightweight
      UP(0.05): battery
      @_id: "5f0c..."

Quotes have the rule hold for the whole query alone. Short rewrites are synonyms, which find more documents. The words of long
ones boost what is found, each on its own, since Querqy wants all words of one boost in a document.

Its grammar (`querqy.rewriter.commonrules` of querqy-core 4): `\` escapes `\`, `"`, `*` and `#`, and nothing else; words end at
white space; a `:` within a word parts a field from it; `$` and digits stand for what a wildcard has matched; a `#` after `\\\`
still begins a comment; a line that ends with `=>` is a rule's input; in a boost nothing is unescaped, and `+` and `-` before a
word are operators.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.publish.formats.rule_texts import has_words, is_query_alone, is_short, repeats_query
from jobs.publish.rows import LookUpRows
from jobs.runs.folder import RunFolder

FILE = "querqy_rules.txt"
MOST_BOOSTS = 32
"""Words of a rule that boost: those of most weight, which several rewrites have."""
ROWS = ("left_out_context_or_filters", "left_out_grammar", "left_out_operator", "left_out_no_rewrites")
"""Rows without a rule: asked with earlier turns or filters; with what the grammar cannot write; with a `+` or `-` before a
word, which the search takes for an operator; without rewrites that a rule may have."""
REWRITES = ("rewrites_of_weight_0", "rewrites_as_the_query", "rewrites_without_words")
COUNTED = ("rules", "synonyms", "boosts", "synonyms_cleaned", "boosts_left_out", *ROWS, *REWRITES)
"""What is counted; `synonyms_cleaned` had characters that cannot be escaped, which are now spaces; `boosts_left_out` are words
of long rewrites above `MOST_BOOSTS`."""

_ESCAPED = re.compile(r'[\\"*#]')
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_NOT_IN_QUERY = re.compile(rf"[{_CONTROL}]|\\#")
_OPERATOR = re.compile(r"(?:^| )[+-][^ ]")
_NOT_IN_SYNONYM = re.compile(rf"[:{_CONTROL}]|\$+(?=\d)|\\(?=#)")
_NOT_IN_BOOST = re.compile(rf'[#:"*\\{_CONTROL}]|\$+(?=\d)')
_ENDS_AN_INPUT = re.compile(r"(?:\s*=>)+$")
_EDGES = ",.;!?()[]{}'‘’“”„«»…、。，"
"""Punctuation that is no part of a word beside it."""
_BATCH = 4_096  # rows at a time


class QuerqyFormat:
    """The rewrites as rules of Querqy."""

    name = "querqy"
    defaults: Mapping[str, Any] = {}

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes the rules in the order of their ids; returns what `COUNTED` says."""
        counts = Counter(dict.fromkeys(COUNTED, 0))
        with (folder / FILE).open("w", encoding="utf-8", newline="\n") as file:
            for batch in rows.batches(_BATCH):
                file.writelines(rule for row in batch.to_pylist() if (rule := rule_of(row, counts)))
        return dict(counts)


def rule_of(row: Mapping[str, Any], counts: Counter[str]) -> str | None:
    """Returns the lines of a row's rule; None: it has none, and `counts` has why."""
    if not is_query_alone(row):
        counts["left_out_context_or_filters"] += 1
        return None
    if (written := input_of(row["query"])) is None:
        counts["left_out_operator" if _OPERATOR.search(row["query"]) else "left_out_grammar"] += 1
        return None
    rewrites = list(_usable(row, counts))
    synonyms = {f"SYNONYM({_number(one['weight'])}): {words}": None for one in rewrites if (words := one["synonym"])}
    boosts = _boosts(row["query"], rewrites)
    if not synonyms and not boosts:
        counts["left_out_no_rewrites"] += 1
        return None
    kept = [f"UP({_number(weight)}): {word}" for word, weight in boosts[:MOST_BOOSTS]]
    counts.update(rules=1, synonyms=len(synonyms), boosts=len(kept), boosts_left_out=len(boosts) - len(kept))
    lines = [f"{written} =>", *synonyms, *kept, f"@_id: {json.dumps(row['key'])}"]
    return "\n  ".join(lines) + "\n\n"


def input_of(query: str) -> str | None:
    """Returns the input of a rule that holds for this whole query alone; None where no rule can, or none would ever hold."""
    if _NOT_IN_QUERY.search(query) or _OPERATOR.search(query):
        return None
    escaped = _escaped(query)
    if any(0 < word.find(":") < len(word) - 1 for word in escaped.split(" ")):
        return None
    return f'"{escaped}{" " if escaped.endswith(chr(92)) else ""}"'  # a quote after a backslash closes nothing


def synonym_of(text: str) -> str:
    """Returns the words of a synonym as its line has them; empty: it has none."""
    words = _ENDS_AN_INPUT.sub("", " ".join(_NOT_IN_SYNONYM.sub(" ", text).split()))
    return _escaped(words) if has_words(words) else ""


def boosted_words(text: str) -> list[str]:
    """Returns the words of a long text that may boost, each once."""
    words: dict[str, str] = {}
    for word in _NOT_IN_BOOST.sub(" ", text).split():
        plain = word.lstrip(_EDGES + "+-").rstrip(_EDGES)
        plain = _ENDS_AN_INPUT.sub("", plain) if plain.endswith("=>") else plain
        if has_words(plain):
            words.setdefault(plain.casefold(), plain)
    return list(words.values())


def _usable(row: Mapping[str, Any], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yields the rewrites that a rule may have, with `synonym` (empty: none) and `boosted` words; counts the others."""
    for rewrite in row["rewrites"]:
        text, short = rewrite["text"], is_short(rewrite)
        synonym, boosted = synonym_of(text) if short else "", [] if short else boosted_words(text)
        if not rewrite["weight"] > 0:
            counts["rewrites_of_weight_0"] += 1
        elif repeats_query(row, rewrite):
            counts["rewrites_as_the_query"] += 1
        elif not synonym and not boosted:
            counts["rewrites_without_words"] += 1
        else:
            counts["synonyms_cleaned"] += short and synonym != _escaped(" ".join(text.split()))
            yield {"weight": rewrite["weight"], "synonym": synonym, "boosted": boosted}


def _boosts(query: str, rewrites: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Returns the words of long rewrites that the query lacks, with their shares of the rewrites' weights, greatest first."""
    asked, weights, words = set(query.split(" ")), dict[str, float](), dict[str, str]()
    for one in rewrites:
        share = one["weight"] / max(1, len(one["boosted"]))
        for word in one["boosted"]:
            if (folded := word.casefold()) not in asked:
                weights[folded] = weights.get(folded, 0.0) + share
                words.setdefault(folded, word)
    return sorted(((words[folded], weight) for folded, weight in weights.items()), key=lambda one: -one[1])


def _number(weight: float) -> str:
    return f"{weight:.6g}".replace("+", "")  # which a parameter cannot have


def _escaped(text: str) -> str:
    return _ESCAPED.sub(r"\\\g<0>", text)


FORMAT = QuerqyFormat()
