"""Measures a run: its results beside its original query alone, and its answers; as JSON-able values.

Judgements name log rows or queries. A mean is over the judged keys that are counted (`jobs/measure/frame.py`).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cluster.storage import Storage
from jobs.config.config import Config
from jobs.log.judgements import Judgements
from jobs.measure.frame import Frame, Pair, measure
from jobs.measure.missing_documents import unknown_documents
from jobs.measure.notes import INTERVAL, interval_notes, judge_notes, judged_note, zero_notes
from jobs.measure.significance import FEW_QUERIES
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import known

EVALUATION = "evaluation.json"


@dataclass(frozen=True)
class Evaluation:
    """A run's results beside its original query alone."""

    frame: Frame
    """Its arms are the results and, where its lists were kept and searched alone, the original. These lists are fused and not
    reranked, so they are not the paper's OQR where the results are reranked: documents that only they have were not scored."""
    config: Config

    @property
    def has_original(self) -> bool:
        return len(self.frame.arms) > 1

    @cached_property
    def pairs(self) -> Mapping[str, Pair]:
        """Returns measure -> the results beside the original alone, the leading measure first."""
        return self.frame.pairs(0, 1 if self.has_original else None, self.config.evaluate.margin)

    @property
    def reranked(self) -> bool:
        return self.config.rerank.kind != "none"

    @property
    def alone(self) -> str:
        """Returns the name of the baseline that the results are compared with."""
        return "original alone, fused, not reranked" if self.reranked else "original alone"

    @property
    def notes(self) -> list[str]:
        frame, notes = self.frame, _counted_notes(self.frame, "results")
        if frame.warning is not None:
            return notes
        if not math.isnan(frame.unjudged[0]):
            shares = [f"{100 * share:.1f} %" for share in frame.unjudged.tolist() if not math.isnan(share)]
            alone = "".join(f", {share} of the original's" for share in shares[1:])
            first = min(self.config.results, frame.depth)
            notes.append(f"not judged, so not relevant: {shares[0]} of the results' first {first}{alone}")
        if not self.has_original:
            joining = " and ".join(self.config.joining)
            why = f"{joining} searched it as one with its rewrites" if joining else "retrieve.keep_runs is false"
            why = "the judge graded the results only" if frame.judge is not None else why
            notes.append(f"original alone: not measured, since {why}")
        elif self.reranked:
            notes.append(f"{self.alone}: the results are reranked, so the difference is of rewriting and reranking together")
        if self.has_original and self.config.fuse.duplicates == "drop":
            notes.append(
                "documents with the text of a better one are dropped from the results, and not from the original alone"
            )
        notes += frame.left_out
        if self.has_original:
            untested = [name for name, pair in self.pairs.items() if pair.interval is None]
            notes += interval_notes(f"to the original alone; {INTERVAL}", frame, untested)
        return notes

    def values(self) -> dict[str, Any]:
        frame = self.frame
        unjudged = [*frame.unjudged.tolist(), None]
        fields = ("difference", "interval", "detectable", "verdict")
        measures = {
            name: {"results": pair.b, "original": pair.a} | {field: getattr(pair, field) for field in fields}
            for name, pair in self.pairs.items()
        }
        values = {
            "key": frame.key,
            **({} if frame.judge is None else {"judged_by": frame.judge.model}),
            **frame.counted,
            "without_results": int(frame.failed[0]),
            "unjudged": unjudged[0],
            "original_unjudged": unjudged[1],
            "kept": self.config.results,
            "reranked": self.reranked,
            "unknown_documents": frame.unknown and {"unknown": frame.unknown.unknown, "looked_up": frame.unknown.looked_up},
            "measures": measures,
            "warning": frame.warning,
            "notes": self.notes,
        }
        return dict(known(values))


def evaluate(run: RunFolder, judgements: Judgements, measures: Sequence[str] | None = None) -> Evaluation:
    """Returns the measures of a run's committed results; those of its config by default."""
    frame = replace(measure(run, judgements, measures), unknown=unknown_documents(run, judgements))
    return Evaluation(frame, run.config)


def _counted_notes(frame: Frame, what: str) -> list[str]:
    """Returns notes on the keys that figures are over, and on those without `what`; a warning where nothing is measured."""
    if frame.warning is not None:
        return [f"warning: {frame.warning}"]
    unknown = [] if frame.unknown is None else [frame.unknown.note]
    zeros = zero_notes((int(frame.failed[0]), f"without {what}"), (frame.rejected, "rejected"))
    return [*judge_notes(frame.judge), judged_note(frame), *unknown, *zeros]


def answer_notes(frame: Frame) -> list[str]:
    """Returns notes on what the figures of answers include and leave out, a sentence each."""
    notes = _counted_notes(frame, "an answer")
    if frame.keys and any(interval for _, interval in frame.means.values()):
        rough = "; of so few clusters a rough one" * (frame.drawn < FEW_QUERIES)
        notes.append(f"{INTERVAL}: of the mean, Student's t over clusters of near-duplicates{rough}")
    return notes


def answers_values(frames: Iterable[Frame]) -> dict[str, Any]:
    """Returns the values by gold answers under `answers`, and under `judged_answers` those of each kind of judgement."""
    values: dict[str, Any] = {}
    for frame in frames:
        own = {
            **({} if frame.judge is None else {"judged_by": frame.judge.model}),
            "key": frame.key,
            **frame.counted,
            "without_answer": int(frame.failed[0]),
            "measures": {name: {"answers": mean, "interval": interval} for name, (mean, interval) in frame.means.items()},
            "warning": frame.warning,
            "notes": answer_notes(frame),
        }
        values |= {"answers": own} if frame.gold else {"judged_answers": values.get("judged_answers", {}) | {frame.kind: own}}
    return dict(known(values))


def store_evaluation(storage: Storage, values: Mapping[str, Any], *, finished: bool = True) -> None:
    """Stores the values of an evaluation in a run's folder for `runs`, in place of earlier ones; nothing where there are none.

    `finished`: whether the run was, when it was measured.
    """
    if values:
        storage.put(EVALUATION, json.dumps({"finished": finished, **values}, indent=1).encode())


def stored_evaluation(output: Storage, folder: str, *, finished: bool) -> dict[str, Any] | None:
    """Returns the values as they were stored; None: there are none, or they cannot be parsed.

    `finished`: whether the run is. Of a finished one, what was measured before its end, of the most frequent queries, is none.
    """
    try:
        values = json.loads(output.get(f"{folder}/{EVALUATION}") or b"null")
    except ValueError:
        return None
    if not isinstance(values, dict) or not values.keys() & {"measures", "answers", "judged_answers"}:
        return None
    return None if finished and not values.get("finished", True) else values
