"""Notes on what was measured: what the figures include, leave out and assume; each said once, in the words of every verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.log.judgements import JudgedBy, Key
from jobs.measure.clusters import SIMILARITY
from jobs.measure.significance import ALPHA, FEW_QUERIES, LEVEL, POWER
from jobs.terminal.formats import and_more, figure

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
    """Returns why no key is counted, in one line.

    Args:
        judged: number of keys with judgements.
        not_committed: number of those in the log, whose query is not committed.
        unmatched: a key of the judgements and one of the log, as examples.
        key: what the judgements name.
        gold: whether they are gold answers.
    """
    words, look = _WORDS[key]
    named = f"{words} with gold answers" if gold else f"judged {words}"
    if not_committed:
        return f"nothing is measured: the queries of all {not_committed:,} {named} of the log are not committed"
    found = ""
    if unmatched is not None:
        one, logged = (f"{name[:80]!r}" for name in unmatched)
        found = f": the {'gold answers' if gold else 'judgements'} say {one}, the log {logged}"
    return f"nothing is measured: none of {judged:,} {named} is in the log{found}; see {look}"


def counts_in_words(*counts: tuple[int, str]) -> str:
    """Returns the counts above 0 with what they are of, in one line."""
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def judge_notes(judge: JudgedBy | None) -> list[str]:
    """Returns what is to be said of the LLM that judged; nothing where people did."""
    if judge is None:
        return []
    words = "an LLM, and LLMs over-rate: the differences tell more than the height of the figures"
    return [f"judged by {judge.model}, {words}", *judge.notes]


def judged_note(
    key: Key,
    counted: int,
    queries: int,
    *left_out: tuple[int, str],
    clusters: int | None = None,
    where: str = "",
    gold: bool = False,
) -> str:
    """Returns what the figures are over.

    Args:
        key: what the judgements name.
        counted: number of counted keys.
        queries: number of their distinct queries.
        left_out: numbers of keys that are not counted, and why.
        clusters: number of clusters of near-duplicate queries; None: not said.
        where: where they are judged, of two runs.
        gold: whether they have gold answers, in place of judgements.
    """
    rows = f"{counted:,} log row{'s' * (counted != 1)} of " if key == "log_id" else ""
    alike = ""
    if clusters is not None and clusters < queries:
        alike = f" in {clusters:,} clusters of near-duplicates (words {100 * SIMILARITY:.0f} % alike)"
    left = counts_in_words(*left_out)
    left = f"; left out: {left}" if left else ""
    return f"{'gold answers' if gold else 'judged'}{where}: {rows}{queries:,} distinct queries{alike}{left}"


def zero_notes(*counts: tuple[int, str], more: Sequence[str] = ()) -> list[str]:
    """Returns a note on what counts as zero: the counts above 0, and more in words; none where nothing does."""
    words = ", ".join(filter(None, [counts_in_words(*counts), *more]))
    return [f"counted as zero: {words}"] if words else []


def interval_notes(what: str, clusters: int, keys: int, untested: Sequence[str]) -> list[str]:
    """Returns how intervals and tests are made (`jobs/measure/significance.py`), and which are none.

    Args:
        what: what they are of.
        clusters: number of clusters of near-duplicate queries.
        keys: number of counted keys.
        untested: what has none, though there are several clusters.
    """
    if clusters < 2:
        return ["no interval and no test: it takes two queries that are no near-duplicates"]
    few = "; of so few clusters a rough one" * (clusters < FEW_QUERIES)
    notes = [f"difference: {what}: paired t-test{' over clusters' * (clusters < keys)}{few}"]
    if untested:
        notes.append(f"no test: every cluster differs by the same, which tells no variance: {and_more(untested)}")
    return notes


def detectable_words(sizes: Mapping[str, float]) -> list[str]:
    """Returns the smallest true differences that tests find, in one line, of measure -> difference; nothing without."""
    each = ", ".join(f"{name} {figure(size)}" for name, size in sizes.items())
    power = f"a power of {100 * POWER:.0f} % at {ALPHA:g}"
    return [f"smallest difference that these queries show, with {power}: {each}"] if each else []


def interval_words() -> str:
    """Returns the interval as it is named: 95 % interval."""
    return f"{100 * LEVEL:.0f} % interval"


def ends_in_words(interval: tuple[float, float] | None) -> str:
    """Returns an interval like '+.0012 to +.0345', or "-" for none."""
    return "-" if interval is None else " to ".join(figure(end, "+") for end in interval)
