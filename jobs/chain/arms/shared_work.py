"""Shared work of the arms of a job: requests, texts, lists, scores. Each is planned once. A run has one arm.

    Reading  the requests of an arm, and the texts that are read from their answers, and chosen; equal requests are one
    Search   the retrievers that search these texts
    Answer   one arm: how the lists are fused, reranked, ordered and cut

Arms with some of the strategies of a reading share it: each gives weight 0 to the strategies that it lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.chain.arms.resources import AnsweredBy, OpenedBy, ScoredBy
from jobs.chain.cuts import Cuts
from jobs.config.config import stage_of
from jobs.tables import ORIGINAL

if TYPE_CHECKING:  # workers of most stages need no more than what they are given
    from jobs.chain.arms.tasks import LlmTask
    from jobs.config.settings import WebSearchSettings
    from retrievers.settings import FuseSettings
    from rewriters.rewriter import Rewriting
    from rewriters.settings import GateSettings
    from rewriters.steps.settings import GradeSettings


@dataclass(frozen=True)
class RewriteGate:
    """A gate of arms, by which the originals are searched before rewriting."""

    settings: GateSettings
    retriever: str
    """Key of `SharedWork.retrievers`."""


@dataclass(frozen=True)
class Reading:
    """Texts of the queries, with the requests whose answers they are read from.

    Attributes:
        name: The first arm that has them.
        rewriting: How strategies are chosen: the pool and the selection.
        asked: What requests are made of and answers read with: `rewriting`, or more strategies, where the joint request is that
            of the config, which asks for more.
        sample: From 0, of several answers to the same requests.
        engines: `Request.engine` -> the engine that answers; the common one is "".
        gate: Which queries have them; None: all.
    """

    name: str
    rewriting: Rewriting
    asked: Rewriting
    sample: int = 0
    engines: Mapping[str, AnsweredBy] = field(default_factory=dict)
    gate: RewriteGate | None = None

    def rewrites(self, strategies: Collection[str], rewrites: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Returns the rewrites of a query that are texts of this reading and of these strategies."""
        return [one for one in rewrites if self.engines and one["arm"] == self.name and one["strategy"] in strategies]


@dataclass(frozen=True)
class Search:
    """Lists of the texts of a reading.

    Attributes:
        reading: Its index.
        retrievers: Name in the arm -> key of `SharedWork.retrievers`.
        together: The names that search all texts of a query as one.
        routes: Strategy -> names; default: all.
        fuse: Settings that decide what is joined, where texts are searched together; else the default.
        cuts: Of strategies and retrievers that have their own.
        depth: Hits of a list that take part, at most.
        dense: The name whose vectors give similarities; None: there is none.
        joined: The strategies whose texts are joined, where texts are searched together.
    """

    reading: int
    retrievers: Mapping[str, str]
    together: frozenset[str]
    routes: Mapping[str, list[str]]
    fuse: FuseSettings
    cuts: Cuts
    depth: int
    dense: str | None
    joined: frozenset[str] | None = None

    def route(self, strategy: str) -> Collection[str]:
        """Returns the names of the retrievers that search a strategy's texts."""
        return self.routes.get(strategy, list(self.retrievers))

    @property
    def joining(self) -> list[str]:
        """Returns the names that search all texts of a query as one and, where these find nothing, the original by itself."""
        return [name for name in self.route(ORIGINAL) if name in self.together]


@dataclass(frozen=True)
class Answer:
    """One arm: its lists, fusion, reranker and later steps.

    Attributes:
        arm: Its name.
        search: Index of its lists.
        strategies: Those whose lists are fused, beside the original's.
        fuse: With the number of candidates that are kept.
        documents: Key of the retriever with the texts of its documents.
        reranker: Index in `SharedWork.rerankers`; None: none.
        combine: Of both orders.
        keep: Results per query.
        looked: Documents per query, the results among them, that measures read: behind the results stand the other
            candidates, then the fused documents that are none.
        cut_from: A shorter list is whole (`cut_from` in `jobs/chain/cuts.py`).
        candidates: Fused documents that are handed on and reranked, as `fuse.keep` has it.
        retrieved: Hits of a list, as `retrieve.depth` has it; other arms may have made the list deeper.
        tasks: Key of the config -> what LLMs are asked about its results.
        grade: How first results are graded before they are answered from (corrective RAG, Yan et al. 2024, arXiv 2401.15884);
            None: they are not.
        web: When the web is asked then; None: never.
        web_search: The search engine of the web.
    """

    arm: str
    search: int
    strategies: frozenset[str]
    fuse: FuseSettings
    documents: str
    reranker: int | None
    combine: str
    keep: int
    looked: int
    cut_from: int
    candidates: int
    retrieved: int
    tasks: Mapping[str, LlmTask] = field(default_factory=dict)
    grade: GradeSettings | None = None
    web: WebSearchSettings | None = None
    web_search: OpenedBy | None = None

    @property
    def drops(self) -> bool:
        """Returns True if documents with one text are one candidate."""
        return self.fuse.duplicates == "drop"


@dataclass(frozen=True)
class SharedWork:
    """The work of all arms."""

    readings: tuple[Reading, ...]
    retrievers: Mapping[str, OpenedBy]
    searches: tuple[Search, ...]
    rerankers: tuple[ScoredBy, ...]
    answers: tuple[Answer, ...]
    keep_sources: bool
    keep_lists: bool = True
    """True if the lists of the first answer are written to runs/."""
    keep_candidates: bool = True
    """True if its fused candidates are written to candidates/."""

    @property
    def only(self) -> Answer | None:
        """Returns the answer of a job of one arm, whose counts, flags and notes need no arm's name; None: there are several."""
        return self.answers[0] if len(self.answers) == 1 else None

    def reading_of(self, answer: Answer) -> Reading:
        """Returns the texts that an arm searches."""
        return self.readings[self.searches[answer.search].reading]

    def doing(self, stage: str) -> dict[int, Answer]:
        """Returns the arms with a stage after retrieval, as in costs, by index."""
        arms = enumerate(self.answers)
        if stage == "grade":  # which a reranker may do
            return {number: one for number, one in arms if one.grade is not None}
        return {number: one for number, one in arms if any(stage_of(section) == stage for section in one.tasks)}

    def tasks(self, stage: str) -> list[LlmTask]:
        """Returns the tasks of a stage, as in costs, each once."""
        every = {one.key: one for arm in self.answers for section, one in arm.tasks.items() if stage_of(section) == stage}
        return list(every.values())

    def texts_of(self, number: int, rewrites: Iterable[Mapping[str, Any]]) -> list[str]:
        """Returns the texts that an answer, by its index, has of the rewrites of a query."""
        answer = self.answers[number]
        return [one["text"] for one in self.reading_of(answer).rewrites(answer.strategies, rewrites)]

    def compared_by(self, search: int) -> str | None:
        """Returns the key of the retriever by whose vectors an arm compares the texts of a search; None: no arm does."""
        weighs = any(one.search == search and one.fuse.redundancy == "cosine" for one in self.answers)
        own = self.searches[search]
        return own.retrievers[own.dense] if weighs and own.dense is not None else None

    def arms_of(self, search: int) -> dict[frozenset[str], list[str]]:
        """Returns strategies -> the arms that need the lists of their texts, of a search by its index."""
        arms: dict[frozenset[str], list[str]] = {}
        for answer in self.answers:
            if answer.search == search:
                arms.setdefault(answer.strategies, []).append(answer.arm)
        return arms

    def strategies(self, search: int) -> frozenset[str]:
        """Returns the strategies whose texts an arm needs searched, of a search by its index."""
        return frozenset().union(*self.arms_of(search))
