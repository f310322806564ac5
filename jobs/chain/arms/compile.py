"""The compiler: from the arms of a job to the work that they share. A run is a job of one arm."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cluster.errors import ClusterError, ConfigError, RetrieverError, RewriterError
from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import FULL, RUN, Arm
from jobs.chain.arms.equal_arms import DistinctArms, system
from jobs.chain.arms.opened import OpenedBy, ScoredBy, digest
from jobs.chain.arms.pools import pools_of_arms
from jobs.chain.arms.shared_work import Answer, Search, SharedWork
from jobs.chain.arms.tasks import TaskNames, judge_tasks
from jobs.chain.arms.texts import ArmTexts, gate_of
from jobs.chain.cuts import Cuts, cut_from, cuts_of
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.given_lists import with_given_lists
from jobs.job.indexes import check_depths, check_documents, index_identities, read_facts, read_states
from jobs.job.keys import fingerprint, identity
from jobs.job.pools import with_precisions
from jobs.job.prepare import Prepared, reranking_identity, resolved_rewriting
from jobs.job.rewriting import read_rewriting
from jobs.job.searched import SearchedIndex, searched_indexes
from jobs.job.steps import WEB_SEARCH, ReadySteps, ready_steps
from retrievers.settings import FuseSettings
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriting

Value = TypeVar("Value")
_OF_INDEXES = ("index-missing", "index-other", "index-other")
_OWN_INDEX = "give the arm an index of its own (retrieve.retrievers.NAME.index), which `dmqr index` builds from corpus.path"


@dataclass(frozen=True)
class Compiled:
    """The arms and the work that they share."""

    arms: tuple[Arm, ...]
    work: SharedWork
    fingerprints: Mapping[str, str]
    """Arm -> the fingerprint of a run of it alone, but where it reads a part of an answer; an oracle has none."""
    parts: Mapping[str, list[str]]
    """Arm -> the strategies of the joint request of which it reads a part, if it does: its run would ask for fewer."""

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what determines the results of all arms, as JSON-able values."""
        arms = [[one.name, one.sample, self.fingerprints.get(one.name), list(one.members), list(one.also)] for one in self.arms]
        kept = [[answer.keep, answer.looked] for answer in self.work.answers]
        return {"arms": arms, "keep": kept, "sources": self.work.keep_sources}

    def rewrites_of(self, arm: str) -> str | None:
        """Returns the arm under which the texts of an arm are stored; None: it has none, as the original and oracles."""
        answer = next((one for one in self.work.answers if one.arm == arm), None)
        reading = self.work.readings[self.work.searches[answer.search].reading] if answer is not None else None
        return reading.name if reading is not None and reading.engines else None

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the columns of the log that prompts or selections use, sorted."""
        return tuple(sorted({name for reading in self.work.readings for name in reading.rewriting.columns}))


def compile_arms(arms: Sequence[Arm], keep: int, *, sources: bool) -> Compiled:
    """Returns the arms with the work that they share.

    Args:
        arms: By `jobs.chain.arms.arms.arms_of`; generated ones that are an earlier one are left out.
        keep: Documents that are written per query and arm: results, and behind them those that measures read.
        sources: Whether the lists that a result comes from are written.

    Raises:
        ConfigError, RewriterError, RetrieverError: An arm cannot be run.
    """
    return _compiled(arms, keep, _Facts(requested=pools_of_arms(arms[0].config, arms)), sources=sources)


def compile_run(prepared: Prepared) -> Compiled:
    """Returns a run as the work of one arm; it is checked already."""
    config = prepared.config
    compiled = _compiled([Arm(RUN, "run", config)], config.results, _Facts(prepared), sources=True)
    lists, candidates = config.retrieve.keep_runs, config.fuse.keep_candidates
    return replace(compiled, work=replace(compiled.work, keep_lists=lists, keep_candidates=candidates))


def _compiled(arms: Sequence[Arm], keep: int, facts: _Facts, *, sources: bool) -> Compiled:
    answered = [(arm, facts.checked(arm)) for arm in arms if not arm.members]
    configs = {arm.name: config for arm, config in answered}
    texts = ArmTexts(facts.rewriting, configs[arms[0].name])
    lists = _Lists(facts, answered)
    rerankers, names, first = dict[str, ScoredBy](), TaskNames(), configs[arms[0].name]
    judged = judge_tasks(first, facts.steps(first))
    answers, fingerprints, distinct = [], {}, DistinctArms()
    for arm in arms:
        if arm.members:
            distinct.add(arm, None)
            continue
        config = configs[arm.name]
        reading = texts.add(arm, config, gate_of(config, lists.opened(config)))
        identified_by = texts.identity(arm.name, facts.rewriting(config)[2])
        reranked = config.rerank.kind != "none"
        documents = lists.open(config, config.retrieve.text_retriever)
        scored_by = facts.reranker(config, documents, lists.retrievers[documents].texts) if reranked else None
        if scored_by is not None:
            rerankers.setdefault(scored_by.label, scored_by)
        kept = min(keep, config.fuse.keep, config.rerank.keep if reranked else keep)
        drops = config.fuse.duplicates == "drop"  # among the candidates, so that lists end with them
        all_fused = reranked or drops or config.iterate is not None or arm is arms[0]  # rounds are merged before they are cut
        looked = min(keep, config.fuse.keep) if drops else keep
        cuts, shown = texts.cuts(reading), config.shown.values()
        answer = Answer(
            arm.name,
            lists.search(config, reading, cuts_of(config, cuts)),
            frozenset(config.rewrite.planned),
            _fusing(config, max(looked, *shown, config.fuse.keep if all_fused else 0)),
            documents,
            None if scored_by is None else list(rerankers).index(scored_by.label),
            config.rerank.combine,
            kept,
            looked,
            min(looked, cut_from(config, cuts)),
            config.fuse.keep,
            config.retrieve.depth,
            names.tasks(config, facts.steps(config), arm.name) | judged,
            config.grade,
            config.web,
            _web_search(config, facts.steps(config)),
        )
        if not distinct.add(arm, system(config, facts.rewriting(config)[1], answer)):
            continue
        answers.append(answer)
        known = identity(config, facts.indexes(config), identified_by, facts.reranking(config), facts.steps(config).identity())
        fingerprints[arm.name] = fingerprint(known)
    work = SharedWork(
        tuple(texts.readings), dict(lists.retrievers), tuple(lists.searches.values()), tuple(rerankers.values()),
        tuple(answers), sources,
    )  # fmt: skip
    return Compiled(distinct.arms, work, fingerprints, {arm: of for arm in fingerprints if (of := texts.part_of(arm))})


@contextmanager
def _naming(arm: Arm) -> Iterator[None]:
    """Puts the name of an arm before the line of an error in its body, unless the arm is the config itself.

    Of an index that does not fit, the remedy is one that leaves the config's own index as it is.
    """
    try:
        yield
    except (ConfigError, RetrieverError, RewriterError, ClusterError) as error:
        if arm.name == FULL:
            raise
        line = error.line
        if error.code in _OF_INDEXES and arm.changes.keys() - {"rewrite.strategies", "rewrite.select"}:
            line = f"{line.rpartition('; ')[0] or line}; {_OWN_INDEX}"
        raise type(error)(error.code, f"ablate: arm {arm.name!r}: {line}") from error


class _Facts:
    """What is read once for all arms that have the same settings."""

    def __init__(self, prepared: Prepared | None = None, requested: Mapping[str, PoolRequest] | None = None) -> None:
        """Begins with what is known of a checked job; `requested`: the pools of all arms, whose devices decide precisions."""
        self._known, self._requested = dict[Hashable, Any](), requested
        if prepared is not None:
            config, identified_by = prepared.config, prepared.identity
            known = {
                "config": config,
                "indexes": prepared.indexes,
                "facts": prepared.facts,
                "documents": None,
                "rewriting": (prepared.engine, prepared.rewriting, identified_by["rewrite"]),
                "reranking": identified_by["rerank"],
                "steps": prepared.steps,
            }
            self._known = {_fact(name, config): value for name, value in known.items()}
            self._known |= {("state", one.place): prepared.states.get(one.place) for one in prepared.searched}

    def checked(self, arm: Arm) -> Config:
        """Returns the config of an arm with the precision of its models, after the checks that a run of it alone makes."""
        with _naming(arm):
            config = self.config(arm.config)
            indexes = self.indexes(config)
            check_depths(config, self._once(_fact("facts", config), lambda: read_facts(config, indexes)))
            self.rewriting(config)
            if config.reads_texts:
                self._once(_fact("documents", config), lambda: check_documents(config, indexes))
            self.reranking(config)
            self.steps(config)
            return config

    def config(self, config: Config) -> Config:
        """Returns a config with the precision of its models."""
        made = self._once(_fact("config", config), lambda: with_given_lists(with_precisions(config, self._requested)))
        return config.model_copy(update={"retrieve": made.retrieve, "rerank": made.rerank})

    def rewriting(self, config: Config) -> tuple[EngineSettings | None, Rewriting, dict[str, Any]]:
        """Returns the settings of an arm's engine, what it rewrites with, and its identity."""
        read = _fact("rewriting", config)
        return self._once(read, lambda: resolved_rewriting(config, read_rewriting(config), self._resolved)[:3])

    def steps(self, config: Config) -> ReadySteps:
        """Returns what LLMs do with the results of an arm."""
        return self._once(_fact("steps", config), lambda: ready_steps(config, self._resolved))

    def _resolved(self, settings: EngineSettings) -> tuple[EngineSettings, dict[str, Any]]:
        return self._once(("engine", digest(settings.model_dump())), lambda: engine.resolve(settings))

    def indexes(self, config: Config) -> dict[str, dict[str, Any]]:
        """Returns retriever -> identity of its index."""
        return self._once(_fact("indexes", config), lambda: index_identities(config))

    def state(self, searched: SearchedIndex) -> Any:
        """Returns the state of an index that may change in place, the same for all arms; None of others."""
        return self._once(("state", searched.place), lambda: read_states([searched]).get(searched.place))

    def reranking(self, config: Config) -> dict[str, Any]:
        """Returns the identity of an arm's reranker."""
        return self._once(_fact("reranking", config), lambda: reranking_identity(config))

    def reranker(self, config: Config, documents: str, texts: str) -> ScoredBy:
        """Returns an arm's reranker over the documents of a retriever; `texts`: their identity."""
        settings = config.reranking.model_copy(update={"keep": 10, "combine": "blend"})  # no part of a score
        identified_by = {name: value for name, value in self.reranking(config).items() if name not in ("keep", "combine")}
        return ScoredBy(settings, identified_by, documents, texts)

    def _once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._known:
            self._known[key] = make()
        value: Value = self._known[key]
        return value


def _fact(name: str, config: Config) -> Hashable:
    """Returns what a fact is known by: its name, and the part of a config that decides it."""
    retrieve, rerank = config.retrieve, config.rerank
    if name == "config":
        return name, digest([retrieve.model_dump(), rerank.model_dump(), bool(config.rewrite.planned)])
    if name == "rewriting":
        return name, digest([config.rewrite.model_dump(exclude={"gate"}), config.log.context_column])
    if name == "steps":
        steps = config.iterate, config.grade, config.web, config.answer, config.judge
        own = [one and one.model_dump() for one in steps]
        return name, digest([own, config.rewrite.engine and config.rewrite.engine.model_dump(), config.log.context_column])
    if name == "reranking":
        return name, digest(config.reranking.model_dump())
    return name, digest([[key, one.model_dump()] for key, one in retrieve.retrievers.items()])


class _Lists:
    """Searches, and the retrievers that make them."""

    def __init__(self, facts: _Facts, answered: Sequence[tuple[Arm, Config]]) -> None:
        self._facts = facts
        self.retrievers: dict[str, OpenedBy] = {}
        self.searches: dict[str, Search] = {}
        self._depths: dict[str, int] = {}  # deepest list, by retriever
        for _, config in answered:
            for name in config.retrieve.retrievers:
                key = self._key(config, name)
                self._depths[key] = max(self._depths.get(key, 0), config.retrieve.depth)

    def search(self, config: Config, reading: int, cuts: Cuts) -> int:
        """Returns the index of an arm's lists."""
        retrievers = self.opened(config)
        together = frozenset(name for name, one in config.retrieve.retrievers.items() if one.together)
        joining = FuseSettings(weights=config.fuse.weights, retriever_weights=config.fuse.retriever_weights)
        fuse = joining if together else FuseSettings()
        depth = min(config.fuse.depth, config.retrieve.depth)
        routes = config.retrieve.routed(config.rewrite.planned)
        key = digest([reading, retrievers, sorted(together), routes, fuse.model_dump(), depth,
                      sorted(config.rewrite.planned) if together else None,
                      config.fuse.original_floor, cuts.floors])  # fmt: skip
        search = Search(
            reading, retrievers, together, routes, fuse, cuts, depth, config.dense_retriever,
            frozenset(config.rewrite.planned) if together else None,
        )  # fmt: skip
        self.searches.setdefault(key, search)
        return list(self.searches).index(key)

    def opened(self, config: Config) -> dict[str, str]:
        """Returns the keys of an arm's retrievers by name."""
        return {name: self.open(config, name) for name in config.retrieve.retrievers}

    def open(self, config: Config, name: str) -> str:
        """Returns the key of one of an arm's retrievers."""
        key = self._key(config, name)
        if key not in self.retrievers:
            settings = config.retrieve.retrievers[name].model_copy(update={"together": False, "score_floor": None})
            identified_by = self._facts.indexes(config)[name]
            states = {one.place: self._facts.state(one) for one in searched_indexes({name: settings}, {name: identified_by})}
            changing = {place: state for place, state in states.items() if state is not None}
            self.retrievers[key] = OpenedBy(name, settings, identified_by, self._depths[key], changing)
        return key

    def _key(self, config: Config, name: str) -> str:
        settings = config.retrieve.retrievers[name].model_copy(update={"together": False, "score_floor": None})
        depth = config.retrieve.depth if settings.is_approximate else None  # a deeper search looks at more, and finds others
        return digest([self._facts.indexes(config)[name], settings.model_dump(), depth])


def _web_search(config: Config, steps: ReadySteps) -> OpenedBy | None:
    """Returns the search engine of the web, which is asked where graded results do not suffice.

    Its answers are no answers of a retriever that asks the same: each search is a cost of one stage.
    """
    if config.web is None:
        return None
    return OpenedBy(WEB_SEARCH, config.web.search, dict(steps.searched or {}) | {"asked_by": "web"}, config.web.documents)


def _fusing(config: Config, keep: int) -> FuseSettings:
    """Returns the fusion of an arm over the lists of all strategies that share them."""
    changed = {"keep": keep, "depth": min(config.fuse.depth, config.retrieve.depth), "redundancy": config.used_redundancy,
               "keep_candidates": False}  # fmt: skip
    return config.fuse.model_copy(update=changed)
