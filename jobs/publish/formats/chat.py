"""Conversations that a small rewriter is trained on (SFT): a strategy's prompt with a query, and the answer with its texts.

`chat.jsonl` has the column `messages`, TRL's type *language modeling* in conversational form. An answer has the form in which
the strategy's file reads it, so that the trained model is named as the engine of that strategy and read as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.publish.rows import LookUpRows
from jobs.publish.training.gains import Gains, measured_by
from jobs.publish.training.prompts import answered, as_answer_of, asked, strategies_with_prompts, strategy_to_ask, written
from jobs.publish.training.texts import TrainingQuery, TrainingText, check_training, training_files, training_queries
from jobs.runs.folder import RunFolder
from rewriters.normalise import normalise
from rewriters.strategy import Strategy

COUNTED = ("rows", "held_out", "flagged", "no_prompt", "incomplete", "low_gain", "not_measured", "searched_as_one", "equal")


class ChatFormat:
    """A row per answer that is good."""

    name = "chat"
    defaults: Mapping[str, Any] = {"holdout": 10, "min_gain": None, "prompt_of": None, "qrels": None, "key": None}

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes the rows, and the held-out queries.

        Counted are `rows`; `held_out` queries; and answers that are left out: a text is `flagged` by a guard or the reading;
        the strategy has `no_prompt` that a chat model is asked by; texts are missing (`incomplete`); the gain is too low
        (`low_gain`), `not_measured`, or with one prompt for all not known, since a text was `searched_as_one` with others or
        with the original; the same prompt has an `equal` answer.
        """
        check_training(options)
        pool, one_prompt = strategies_with_prompts(run), options["prompt_of"]
        common = None if one_prompt is None else strategy_to_ask(run, one_prompt)
        least = options["min_gain"]
        gains = None if least is None else Gains(run, measured_by(run, options["qrels"], options["key"]))
        counts = Counter(dict.fromkeys(COUNTED, 0))
        with training_files(folder, self.name, run, counts) as (held, lines):
            for query in training_queries(run, rows, gains, options["holdout"], held, counts):
                said: set[tuple[str, str]] = set()
                for strategy, answer in _answers(query, pool, common, least, counts):
                    if (key := (strategy.name, normalise(answer))) in said:
                        counts["equal"] += 1
                        continue
                    said.add(key)
                    messages = asked(strategy, query.query, query.context) + answered(answer)
                    lines.write({"messages": messages}, query.words_id, *key)
        return counts


def _answers(
    query: TrainingQuery, pool: Mapping[str, Strategy], common: Strategy | None, least: float | None, counts: Counter[str]
) -> Iterator[tuple[Strategy, str]]:
    """Yields the strategy whose prompt is used, and a good answer; counts what is left out."""
    for name in dict.fromkeys(one.strategy for one in query.texts):
        mine = [one for one in query.texts if one.strategy == name]
        strategy = common or pool.get(name)
        if strategy is None:
            counts["no_prompt"] += 1
            continue
        if common is not None:
            groups = [[one] for one in mine if one.search_as == common.search_as]
            counts["no_prompt"] += len(mine) - len(groups)
        elif strategy.output == "text":
            groups = [[one] for one in mine]
        else:
            groups = [mine]
        for group in groups:
            if (why := _fault(query, group, least, alone=common is not None)) is not None:
                counts[why] += 1
            elif common is not None:
                answer = as_answer_of(common, pool, name, query.query, group[0].text)
                if answer is None:
                    counts["searched_as_one"] += 1
                else:
                    yield common, answer
            elif answers := written(strategy, query.query, {one.position: one.text for one in group}):
                yield strategy, answers[0]
            else:
                counts["incomplete"] += 1


def _fault(query: TrainingQuery, texts: list[TrainingText], least: float | None, *, alone: bool) -> str | None:
    if any(one.flagged for one in texts):
        return "flagged"
    if least is None:
        return None
    if alone and any(one.joined for one in texts):
        return "searched_as_one"
    values = [one.value for one in texts if one.value is not None]
    if query.original is None or not values:
        return "not_measured"
    return "low_gain" if sum(values) / len(values) - query.original < least else None


FORMAT = ChatFormat()
