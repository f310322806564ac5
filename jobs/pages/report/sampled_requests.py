"""What the LLM was sent for the sample queries, and what it answered, from the run's stored completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.pages.report.failures import Excerpt
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from rewriters.classifier import REQUEST_NAME as CLASSIFY
from rewriters.outcome.retries import FIRST_TRY

PROMPT_CHARACTERS = 6_000
ANSWER_CHARACTERS = 4_000


@dataclass(frozen=True)
class SampledRequest:
    """One request of a query, answered. Texts are None if the report leaves texts out."""

    request: str
    """The joint or adaptive request, the question of the query's type, the strategy, or the prompt of a later step."""
    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    prompt: Excerpt | None
    answer: Excerpt | None
    sample: int = 0
    samples: int = 1
    """How often the same is asked."""
    alike: int = 1
    """Requests of this query that show other documents or texts in the same prompt, this one among them."""
    place: int = 0
    """Its number among them, from 1; 0: it stands for all."""
    told: str = ""
    """What tells it from them."""
    document: str | None = None
    """The doc_id that it is about; None: it is about none, or about which is not known."""

    @property
    def cut(self) -> bool:
        """Returns whether the token limit cut the answer."""
        return self.finish_reason == "length"

    @property
    def name(self) -> str:
        """Returns what is asked, with its number among samples, its document or place among others, and its try."""
        tries, number = divmod(self.sample, FIRST_TRY)
        words = f"{self.request} {number + 1}" if self.samples > 1 else self.request
        if self.document is not None:
            words += f" about {self.document}"
        if self.alike > 1 and not self.place:
            words += f", one of {self.alike}"
        elif self.alike > 1 and self.document is None:
            words += f", {self.place} of {self.alike}"
        return words + (f", try {tries + 1}" if tries else "")


def sampled_requests(
    run: RunFolder, shards: Sequence[int], query_ids: Sequence[str], *, texts: bool, every: bool = False
) -> dict[str, list[SampledRequest]]:
    """Returns query_id -> its answered requests, by name; what the engine gave up is not stored.

    Args:
        run: The run.
        shards: Of the queries.
        query_ids: Of the sample queries.
        texts: Whether prompts and answers are read.
        every: Whether all requests of a step are returned, that of each document; else one of each kind.
    """
    listed = [one.key for shard in shards for one in run.storage.list(f"completions/{shard:06d}")]
    names = [run.storage.url(key) for key in listed if key.endswith(".parquet")]
    if not names:
        return {}
    parts = "left(prompt, $half), right(prompt, $half), length(prompt), left(text, $most), right(text, $most), length(text)"
    query = f"""
        WITH own AS (
            SELECT *, coalesce(sample, 0) AS number, coalesce(variables, '') AS told FROM rows_of($names)
            WHERE query_id IN (SELECT unnest($ids)) AND text IS NOT NULL
        ), once AS (
            SELECT * FROM own
            QUALIFY row_number() OVER (PARTITION BY query_id, request, prompt_hash, number, told ORDER BY start DESC) = 1
        ), numbered AS (
            SELECT *, 1 + max(number % {FIRST_TRY}) OVER (PARTITION BY query_id, request) AS samples,
                count(*) OVER (PARTITION BY query_id, request, number) AS alike,
                row_number() OVER (PARTITION BY query_id, request, number ORDER BY told, prompt_hash) AS place FROM once
        )
        SELECT query_id, request, model, finish_reason, prompt_tokens, completion_tokens, number, samples, alike, place,
            split_part(told, '/', 1){", " + parts if texts else ""}
        FROM numbered WHERE $every OR place = 1
        ORDER BY query_id, request != '{CLASSIFY}', request, number, place
    """
    given: dict[str, object] = {"names": names, "ids": list(query_ids), "every": every}
    if texts:
        given |= {"half": PROMPT_CHARACTERS // 2, "most": ANSWER_CHARACTERS}
    found: dict[str, list[SampledRequest]] = {}
    with database() as connection:
        for row in connection.execute(query, given).fetchall():
            query_id, request, model, finish, asked, answered, sample, samples, alike, place, told, *of = row
            prompt, answer = (_prompt(*of[:3]), _answer(*of[3:], cut=finish == "length")) if texts else (None, None)
            numbers = sample, samples, alike, place if every else 0, told
            one = SampledRequest(request, model, finish, asked, answered, prompt, answer, *numbers)
            found.setdefault(query_id, []).append(one)
    return found


def by_document(requests: Sequence[SampledRequest], about: Mapping[str, str], ranked: Sequence[str]) -> list[SampledRequest]:
    """Returns requests with the documents that they are about, those of a step in order of rank.

    Args:
        requests: Of a query.
        about: What tells a request -> its document.
        ranked: doc_ids, best first.
    """
    named = [replace(one, document=about.get(one.told)) for one in requests]
    steps = {name: place for place, name in enumerate(dict.fromkeys(one.request for one in named))}
    ranks: dict[str | None, int] = {doc_id: rank for rank, doc_id in enumerate(ranked)}
    return sorted(named, key=lambda one: (steps[one.request], one.sample, ranks.get(one.document, len(ranks))))


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
