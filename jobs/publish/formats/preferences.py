"""Pairs of rewrites of one query, of which the first has gained more: for preference optimisation (DPO) of a small rewriter.

`preferences.jsonl` has the columns `prompt`, `chosen` and `rejected`, TRL's type *preference* in conversational form with an
explicit prompt. DPO compares two answers to one prompt, and a strategy mostly has one answer to its own; so all pairs have the
prompt of one strategy (`--prompt-of`, by default `rewrite`, which names no method). Compared are texts of any strategies that
are searched as that one's are, and the query itself, which is the better answer where no rewrite helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from jobs.publish.rows import LookUpRows
from jobs.publish.training.gains import Gains, measured_by
from jobs.publish.training.prompts import (
    DEFAULT_PROMPT,
    answered,
    as_answer_of,
    asked,
    strategies_with_prompts,
    strategy_to_ask,
)
from jobs.publish.training.texts import TrainingQuery, check_training, training_files, training_queries
from jobs.runs.folder import RunFolder
from rewriters.normalise import normalise
from rewriters.strategy import Strategy

COUNTED = ("rows", "queries", "held_out", "ties", "without_pair", "not_measured", "searched_as_one", "equal")


class _Candidate(NamedTuple):
    """An answer: its text, the value of its lists, whether it may be chosen."""

    text: str
    value: float
    good: bool


class PreferencesFormat:
    """Pairs by measured gain."""

    name = "preferences"
    defaults: Mapping[str, Any] = {
        "holdout": 10, "margin": 0.0, "pairs": 3, "prompt_of": None, "qrels": None, "key": None
    }  # fmt: skip

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes the pairs, and the held-out queries.

        Counted are `rows`, those left out since one of a query that differs in filters alone is `equal`, and the `queries` that
        have some; `held_out` queries; `ties`, pairs whose values differ by no more than the margin; queries `without_pair`, and
        those `not_measured`; texts that were `searched_as_one` with others, or with the original, so that no list says what
        they are worth.
        """
        check_training(options)
        strategy, pool = strategy_to_ask(run, options["prompt_of"] or DEFAULT_PROMPT), strategies_with_prompts(run)
        gains = Gains(run, measured_by(run, options["qrels"], options["key"]))
        counts = Counter(dict.fromkeys(COUNTED, 0))
        with training_files(folder, self.name, run, counts) as (held, lines):
            for query in training_queries(run, rows, gains, options["holdout"], held, counts):
                if query.original is None:
                    counts["not_measured"] += 1
                    continue
                pairs = _pairs(_candidates(query, strategy, pool, counts), options["margin"], options["pairs"], counts)
                counts["queries" if pairs else "without_pair"] += 1
                prompt = asked(strategy, query.query, query.context)
                for chosen, rejected in pairs:
                    row = {"prompt": prompt, "chosen": answered(chosen.text), "rejected": answered(rejected.text)}
                    lines.write(row, query.words_id, normalise(chosen.text), normalise(rejected.text))
        return counts


def _candidates(
    query: TrainingQuery, strategy: Strategy, pool: Mapping[str, Strategy], counts: Counter[str]
) -> list[_Candidate]:
    """Returns the answers to compare, the best first; of texts with one normal form the best one; counts `searched_as_one`.

    A text with a fault may be rejected, but not chosen.
    """
    found: dict[str, _Candidate] = {}
    alone = strategy.search_as == "query" and not strategy.include_original
    every = [_Candidate(" ".join(query.query.split()), query.original or 0.0, True)] if alone else []
    for one in query.texts:
        if one.search_as != strategy.search_as:
            continue
        text = None if one.joined else as_answer_of(strategy, pool, one.strategy, query.query, one.text)
        if text is None:
            counts["searched_as_one"] += 1
        elif one.value is not None:
            every.append(_Candidate(" ".join(text.split()), one.value, not one.flagged))
    for answer in sorted(every, key=lambda one: -one.value):
        if answer.text:
            found.setdefault(normalise(answer.text), answer)
    return list(found.values())


def _pairs(candidates: list[_Candidate], margin: float, most: int, counts: Counter[str]) -> list[tuple[_Candidate, _Candidate]]:
    """Returns at most so many pairs, those of the widest difference first; counts ties."""
    pairs = []
    for better, worse in combinations(candidates, 2):
        if round(better.value - worse.value, 6) <= margin:
            counts["ties"] += 1
        elif better.good:
            pairs.append((better, worse))
    return sorted(pairs, key=lambda pair: round(pair[1].value - pair[0].value, 6))[:most]


FORMAT = PreferencesFormat()
