"""What the LLM was sent for the sample queries, and what it answered, from the run's stored completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.pages.report.failures import Excerpt
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from rewriters.classifier import REQUEST_NAME as CLASSIFY
from rewriters.outcome.replays import first_sample, replays_so_far
from rewriters.outcome.retries import FIRST_TRY

PROMPT_CHARACTERS = 6_000
ANSWER_CHARACTERS = 4_000


@dataclass(frozen=True)
class SampledRequest:
    """One request of a query, answered. Texts are None if the report leaves texts out."""

    name: str
    """The joint or adaptive request, the question of the query's type, or the strategy; with the number of several samples,
    of another try, and of a replay."""
    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt: Excerpt | None
    answer: Excerpt | None

    @property
    def cut(self) -> bool:
        """Returns whether the token limit cut the answer."""
        return self.finish_reason == "length"


def sampled_requests(
    run: RunFolder, shards: Sequence[int], query_ids: Sequence[str], *, texts: bool
) -> dict[str, list[SampledRequest]]:
    """Returns query_id -> its answered requests, by name; what the engine gave up is not stored. `shards`: of the queries."""
    listed = [one.key for shard in shards for one in run.storage.list(f"completions/{shard:06d}")]
    names = [run.storage.url(key) for key in listed if key.endswith(".parquet")]
    if not names:
        return {}
    parts = "left(prompt, $half), right(prompt, $half), length(prompt), left(text, $most), right(text, $most), length(text)"
    query = f"""
        SELECT query_id, request, model, finish_reason, prompt_tokens, completion_tokens, coalesce(sample, 0),
            max(sample % {FIRST_TRY}) OVER (PARTITION BY query_id, request){", " + parts if texts else ""}
        FROM read_parquet($names) WHERE query_id IN (SELECT unnest($ids)) AND text IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY query_id, request, sample ORDER BY start DESC) = 1
        ORDER BY query_id, request != '{CLASSIFY}', request, sample
    """
    given: dict[str, object] = {"names": names, "ids": list(query_ids)}
    if texts:
        given |= {"half": PROMPT_CHARACTERS // 2, "most": ANSWER_CHARACTERS}
    found: dict[str, list[SampledRequest]] = {}
    with database() as connection:
        for row in connection.execute(query, given).fetchall():
            query_id, request, model, finish, asked, answered, sample, last, *of = row
            tries, number = divmod(first_sample(sample), FIRST_TRY)
            name = (f"{request} {number + 1}" if last else request) + (f", try {tries + 1}" if tries else "")
            name += f", replay {replays}" if (replays := replays_so_far(sample)) else ""
            prompt, answer = (_prompt(*of[:3]), _answer(*of[3:], cut=finish == "length")) if texts else (None, None)
            found.setdefault(query_id, []).append(SampledRequest(name, model, finish, asked, answered, prompt, answer))
    return found


def _prompt(first: str, last: str, length: int) -> Excerpt:
    """Returns the prompt; of a long one its beginning and, with the query, its end."""
    if length <= len(first):
        return Excerpt(first)
    overlap = len(first) + len(last) - length
    if overlap >= 0:
        return Excerpt(first + last[overlap:])
    return Excerpt(f"{first}\n[… {-overlap:,} characters …]\n{last}")


def _answer(first: str, last: str, length: int, *, cut: bool) -> Excerpt:
    """Returns the answer: the end of a long one that was cut, the beginning of another."""
    rest = length - len(first)
    return Excerpt(last, before=rest) if cut else Excerpt(first, after=rest)
