"""The noise of a judge: how far means move when it is asked the same again (`judge.samples`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from jobs.log.judgements import Judgements
from jobs.measure.arrays import Floats
from jobs.measure.frame import Frame, measure
from jobs.measure.judged.relevance import judged_relevance
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import and_more, figure


def judge_noise(samples: Iterable[tuple[Frame, Frame]]) -> Floats | None:
    """Returns (measures,): the most that the mean of an arm moves from the first answers of the judge to its others.

    It is over the keys that both judge. None: the judge was asked once, or no key is judged twice.

    Args:
        samples: For each of its other answers: the frame by the first ones, and the same by the other.
    """
    moved = []
    for frame, other in samples:
        places = {key: place for place, key in enumerate(other.keys)}
        mine = [place for place, key in enumerate(frame.keys) if key in places]
        if mine:
            theirs = [places[frame.keys[place]] for place in mine]
            moved.append(np.abs(frame.values[:, :, mine].mean(axis=2) - other.values[:, :, theirs].mean(axis=2)).max(axis=0))
    return np.max(moved, axis=0) if moved else None


def noise_notes(frame: Frame, noise: Floats) -> list[str]:
    """Returns how far means move, and which arms are nearer to each other than that."""
    moved = ", ".join(f"{figure(value)} ({name})" for name, value in zip(frame.measures, noise.tolist(), strict=True))
    notes = [f"noise of the judge, asked the same again: means move by up to {moved}"]
    means = frame.values.mean(axis=2)
    for place, name in enumerate(frame.measures):
        near = sorted({
            arm
            for n, arm in enumerate(frame.arms)
            if (np.abs(means[:, place] - means[n, place]) < noise[place]).sum() > 1
        })  # fmt: skip
        if near:
            notes.append(f"not ordered by {name}, nearer to another arm than the judge's noise: {and_more(near)}")
    return notes


def noted_noise(frame: Frame, noise: Floats | None) -> Frame:
    """Returns a frame that has its judge's noise, and says it in the judge's notes; as it is where the noise is not known."""
    if noise is None or frame.judge is None:
        return frame
    judge = frame.judge._replace(notes=(*frame.judge.notes, *noise_notes(frame, noise)))
    return replace(frame, judge=judge, noise=tuple(noise.tolist()))


def with_noise(run: RunFolder, first: Judgements, frame: Frame) -> Frame:
    """Returns a frame of lists with the noise of its judge, if an LLM judged and was asked several times.

    Args:
        run: Whose results are judged.
        first: What the frame is measured by.
        frame: Of lists.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    samples = 1 if run.config.judge is None else run.config.judge.samples
    if frame.judge is None or not frame.keys:
        return frame

    def both(sample: int) -> tuple[Frame, Frame]:
        again = judged_relevance(run, sample)
        assert again is not None, "it has judged"
        one, other = (
            measure(run, judgements, frame.measures, stay=frame.arms)
            for judgements in (_in_both(first, again), _in_both(again, first))
        )
        return one, other

    return noted_noise(frame, judge_noise(map(both, range(1, samples))))


def _in_both(one: Judgements, other: Judgements) -> Judgements:
    """Returns the grades of documents that the other has graded, too: what one of them could not read is no disagreement."""
    grades = {}
    for key, of in one.grades.items():
        theirs = other.grades.get(key)
        both = {doc_id: grade for doc_id, grade in of.items() if doc_id in (theirs or ())}
        if both or of == theirs:  # both without a result
            grades[key] = both
    return one._replace(grades=grades)
