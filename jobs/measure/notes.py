"""Notes on what was measured: what the figures include, leave out and assume; each said once, in the words of every verb."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jobs.log.judgements import JudgedBy, Key
from jobs.measure.clusters import SIMILARITY
from jobs.measure.significance import ALPHA, FEW_QUERIES, GRID, LEVEL, POWER, QUESTIONS, SAMPLES, SIGNS
from jobs.terminal.formats import and_more, figure

if TYPE_CHECKING:
    from jobs.measure.comparison import Comparison
    from jobs.measure.frame import Frame, Pair

INTERVAL = f"{100 * LEVEL:.0f} % interval"
PART = "§"  # after the name of an arm that reads a part of a joint answer

_WORDS: dict[Key, tuple[str, str]] = {  # key -> several of them, the config key to look at where none is in the log
    "log_id": ("log rows", "log.id_column and evaluate.key"),
    "query_id": ("query_ids", "evaluate.key"),
    "query": ("queries", "evaluate.key"),
}
HEADINGS = {
    "lists": "results",
    "relevance": "results, judged by an LLM",
    "answers": "answers, against gold answers",
    "accuracy": "answers, judged right or wrong",
    "criteria": "answers, judged by criteria",
}
"""Kind of a frame -> what its tables are headed with."""
TITLES = {
    "lists": "Results", "relevance": "Judged results", "answers": "Answers", "accuracy": "Accuracy", "criteria": "Criteria",
}  # fmt: skip
"""Kind of a frame -> its name in titles."""
EXPLAINED = {
    "relevance": "The first results by the grades of an LLM, beside the judgements of people.",
    "answers": "F1: of the words of answer and gold answer; EM: exact match; both after lower-casing, without punctuation, "
    "articles and citations (as SQuAD and HotpotQA score answers). The best of several gold answers counts; a query without an "
    "answer counts zero.",
    "accuracy": "accuracy: the share of the answers that the judge calls right, by the gold answers where a query has some, "
    "else by the question. A query without an answer counts zero.",
    "criteria": "Each from 0 to 5, as DMQR-RAG (arXiv 2411.13154) judges answers on production queries; criteria: their mean, "
    "by which arms are ordered. A query without an answer counts zero.",
}
"""Kind of a frame beside the lists -> what its measures are."""


def nothing_measured(
    judged: int, not_committed: int, unmatched: tuple[str, str] | None, key: Key, *, gold: bool = False
) -> str:
    """Returns the reason why no key is counted, in one line."""
    problem, look = _WORDS[key]
    named = f"{problem} with gold answers" if gold else f"judged {problem}"
    if not_committed:
        return f"nothing is measured: the queries of all {not_committed:,} {named} of the log are not committed"
    example = ""
    if unmatched is not None:
        unmatched_key, logged = (f"{name[:80]!r}" for name in unmatched)
        example = f": the {'gold answers' if gold else 'judgements'} say {unmatched_key}, the log {logged}"
    return f"nothing is measured: none of {judged:,} {named} is in the log{example}; see {look}"


def counts_in_words(*counts: tuple[int, str]) -> str:
    """Returns the counts above 0 with what they are of, in one line."""
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def judge_notes(judge: JudgedBy | None) -> list[str]:
    """Returns notes on the LLM that judged; nothing where people did."""
    if judge is None:
        return []
    note = "an LLM, and LLMs over-rate: the differences tell more than the height of the figures"
    return [f"judged by {judge.model}, {note}", *judge.notes]


def judged_note(frame: Frame, left_out: Sequence[tuple[int, str]] | None = None, where: str = "") -> str:
    """Returns the keys that the figures of a frame are over, in words.

    `left_out`: numbers of keys that are not counted, and why; None: those of the frame.
    """
    if left_out is None:
        left_out = (frame.missing, "not in the log"), (frame.not_committed, "of queries not committed yet")
    counted, queries = len(frame.keys), frame.distinct
    rows = f"{counted:,} log row{'s' * (counted != 1)} of " if frame.key == "log_id" else ""
    alike = ""
    if frame.drawn < queries:
        alike = f" in {frame.drawn:,} clusters of near-duplicates (words {100 * SIMILARITY:.0f} % alike)"
    left = counts_in_words(*left_out)
    left = f"; left out: {left}" if left else ""
    return f"{'gold answers' if frame.gold else 'judged'}{where}: {rows}{queries:,} distinct queries{alike}{left}"


def zero_notes(*counts: tuple[int, str], more: Sequence[str] = ()) -> list[str]:
    """Returns a note on what counts as zero: the counts above 0, and more in words; none where nothing does."""
    reasons = ", ".join(filter(None, [counts_in_words(*counts), *more]))
    return [f"counted as zero: {reasons}"] if reasons else []


def interval_notes(what: str, frame: Frame, untested: Sequence[str]) -> list[str]:
    """Returns notes on how intervals and tests are made, and which are none."""
    if frame.drawn < 2:
        return ["no interval and no test: it takes two queries that are no near-duplicates"]
    few = "; of so few clusters a rough one" * (frame.drawn < FEW_QUERIES)
    notes = [f"difference: {what}: paired t-test{' over clusters' * (frame.drawn < len(frame.keys))}{few}"]
    if untested:
        notes.append(f"no test: every cluster differs by the same, which tells no variance: {and_more(untested)}")
    return notes


def table_notes(pairs: Mapping[str, Pair], margin: float) -> list[str]:
    """Returns the smallest true differences that tests find, and what verdicts say; nothing of what there is none."""
    each = ", ".join(f"{name} {figure(one.detectable)}" for name, one in pairs.items() if one.detectable is not None)
    power = f"a power of {100 * POWER:.0f} % at {ALPHA:g}"
    notes = [f"smallest difference that these queries show, with {power}: {each}"] if each else []
    verdicts = f"verdict: better (+) or worse (-) at p < {ALPHA:g}, equivalent (=) within {margin:g} by two one-sided t-tests"
    return notes + [verdicts] * any(one.verdict in SIGNS for one in pairs.values())


def ends_in_words(interval: tuple[float, float] | None) -> str:
    """Returns an interval like '+.0012 to +.0345', or "-" for none."""
    return "-" if interval is None else " to ".join(figure(end, "+") for end in interval)


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yields the notes on a comparison with its differences, a sentence each; the one reason where nothing is measured."""
    frame, differences, first = comparison.frame, comparison.differences, comparison.frame.measures[:1]
    if frame.warning is not None:
        yield f"warning: {frame.warning}"
        return
    yield from (*judge_notes(frame.judge), *frame.left_out)
    if zeros := [name for place, name in enumerate(frame.measures) if not frame.values[:, place].any()]:
        yield f"{', '.join(zeros)}: 0 for every query in every arm, which says nothing of their differences"
    yield from _names(comparison)
    yield judged_note(frame)
    if frame.unknown is not None:
        yield frame.unknown.note
    most, what = int(frame.failed.argmax()), "an answer" if frame.answers else "results"
    by_arm = f"{frame.failed.min():,} to {frame.failed[most]:,} without {what}, by arm (most: {frame.arms[most]})"
    yield from zero_notes((frame.rejected, "rejected"), more=[by_arm] if frame.failed.any() else [])
    left_out = comparison.oracles | comparison.untested | {comparison.baseline}
    alike = [f"{one.arm} by {one.measure}" for one in differences if one.arm not in left_out and math.isnan(one.p)]
    yield from interval_notes(f"to {comparison.baseline}; {INTERVAL} and p", frame, alike)
    if frame.drawn > 1:
        holm, q = (sum(getattr(one, p) is not None for one in differences) // len(frame.measures) for p in ("p_holm", "q"))
        own = "each measure a family of its own"
        if holm:
            yield f"p is Holm's, for {holm:,} arms ({', '.join(QUESTIONS)}), {own}"
        if q:
            yield f"q is Benjamini and Hochberg's, for {q:,} arms of the {GRID}, {own}"
        power = f"a power of {100 * POWER:.0f} % at {ALPHA:g} over the number of comparisons"
        yield f"seen from: the smallest difference that these queries show, with {power}"
        yield f"equivalent: within {comparison.margin:g} of it by two one-sided t-tests at {ALPHA}, unadjusted"
    if known := [n for n in range(len(frame.arms)) if not math.isnan(frame.unjudged[n])]:
        least, most = (known[int(pick(frame.unjudged[known]))] for pick in (np.argmin, np.argmax))
        shares = f"{100 * frame.unjudged[least]:.1f} % ({frame.arms[least]})"
        if frame.unjudged[most] > frame.unjudged[least]:
            shares += f" to {100 * frame.unjudged[most]:.1f} % ({frame.arms[most]})"
        yield f"not judged, so not relevant: {shares} of the first {frame.depth:,} results; condensed means leave them out"
    if comparison.oracles:
        by = "gold answers" if frame.gold else "judgements"
        yield f"oracle arms choose by the {by}: bounds of what choosing can bring, not systems, and not tested"
    samples = [n for n, arm in enumerate(frame.arms) if comparison.families[arm] == SAMPLES or arm == "full"]
    if any(comparison.families[frame.arms[n]] == SAMPLES for n in samples):
        means = frame.values[samples, 0].mean(axis=1)
        ends = f"lies between {figure(float(means.min()))} and {figure(float(means.max()))}"
        yield f"noise floor: {first[0]} of full and {len(samples) - 1} more sample(s) of it {ends}"


def _names(comparison: Comparison) -> Iterator[str]:
    """Yields notes on arms that read a part of a joint answer, and on those that are one system under several names."""
    joint: dict[tuple[str, ...], list[str]] = {}
    for name, arm in comparison.arms.items():
        if arm.get("reads_part_of"):
            joint.setdefault(tuple(arm["reads_part_of"]), []).append(name)
    for names, arms in joint.items():
        asked = f"texts are parts of the answers to the joint request for {', '.join(names)}"
        yield f"{PART} {and_more(arms)}: {asked}; a run of the arm alone would ask for its own strategies only"
    same_as, also = ({name: arm.get(key) for name, arm in comparison.arms.items()} for key in ("same_as", "also"))
    yield from (f"{arm} is {of} under another name: the same system, not tested again" for arm, of in same_as.items() if of)
    yield from (f"{arm} is also {and_more(names)}: one system, one row" for arm, names in also.items() if names)
