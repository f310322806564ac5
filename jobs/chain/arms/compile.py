"""The compiler: from the arms of a job to the work that they share. A run is a job of one arm."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.chain.arms.arms import RUN, Arm, configs_of
from jobs.chain.arms.checks import ArmChecks
from jobs.chain.arms.equal_arms import distinct_arms, system
from jobs.chain.arms.resources import OpenedBy, ScoredBy, digest
from jobs.chain.arms.shared_work import Answer, RewriteGate, Search, SharedWork
from jobs.chain.arms.tasks import Names, arm_tasks, judge_tasks
from jobs.chain.arms.texts import ArmTexts, rewriting_identity
from jobs.chain.cuts import Cuts, cut_from, cuts_of
from jobs.config.config import Config
from jobs.job.corpora import searched_indexes
from jobs.job.keys import fingerprint, identity
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared
from jobs.job.steps import WEB_SEARCH
from retrievers.kinds import RetrieverSettings, indexed_identities
from retrievers.settings import FuseSettings


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
        """Returns the identity of the results of all arms, as JSON values."""
        arms = [[one.name, one.sample, self.fingerprints.get(one.name), list(one.members), list(one.also)] for one in self.arms]
        kept = [[answer.keep, answer.looked] for answer in self.work.answers]
        return {"arms": arms, "keep": kept, "sources": self.work.keep_sources}

    def rewrites_of(self, arm: str) -> str | None:
        """Returns the arm under which the texts of an arm are stored; None: it has none, as the original and oracles."""
        readings = [self.work.reading_of(one) for one in self.work.answers if one.arm == arm]
        return next((one.name for one in readings if one.engines), None)


def compile_arms(prepared: Prepared, arms: Sequence[Arm], keep: int, *, sources: bool) -> Compiled:
    """Returns the arms with the work that they share.

    Args:
        prepared: The ablation.
        arms: By `jobs.chain.arms.arms.arms_of`; generated ones that are an earlier one are left out.
        keep: Documents that are written per query and arm: results, and behind them those that measures read.
        sources: Whether the lists that a result comes from are written.

    Raises:
        ConfigError, RewriterError, RetrieverError: An arm cannot be run.
    """
    checks = ArmChecks(requested_pools(*configs_of(arms)))
    checked = {arm.name: checks.check(arm, prepared) for arm in arms if not arm.members}
    return _compiled(arms, checked, keep, sources=sources)


def compile_run(prepared: Prepared) -> Compiled:
    """Returns a run as the work of one arm; it is checked already."""
    config = prepared.config
    compiled = _compiled([Arm(RUN, "run", config)], {RUN: prepared}, config.results, sources=True)
    lists, candidates = config.retrieve.keep_runs, config.fuse.keep_candidates
    return replace(compiled, work=replace(compiled.work, keep_lists=lists, keep_candidates=candidates))


def _compiled(arms: Sequence[Arm], checked: Mapping[str, Prepared], keep: int, *, sources: bool) -> Compiled:
    first, names = checked[arms[0].name], Names()
    texts, lists = ArmTexts(first), ArmLists(checked.values())
    judged, rerankers = judge_tasks(first.config, first.steps), dict[str, ScoredBy]()
    answers, parts, systems = [], {}, dict[str, Hashable]()
    for arm in (one for one in arms if not one.members):
        known, config = checked[arm.name], checked[arm.name].config
        retrievers, gated = lists.opened(known), config.rewrite.gated
        gate = None if gated is None else RewriteGate(gated, retrievers[gated.by])
        reading, parts[arm.name] = texts.add(arm.name, known, arm.sample, gate)
        cuts, shown = texts.readings[reading].rewriting.cuts, config.shown.values()
        documents, reranked = retrievers[config.retrieve.text_retriever], config.rerank.kind != "none"
        scored_by = _reranker(known, documents, lists.retrievers[documents]) if reranked else None
        if scored_by is not None:
            rerankers.setdefault(scored_by.label, scored_by)
        drops = config.fuse.duplicates == "drop"  # among the candidates, so that lists end with them
        all_fused = reranked or drops or config.iterate is not None or arm is arms[0]  # rounds are merged before they are cut
        looked, depth = min(keep, config.fuse.keep) if drops else keep, min(config.fuse.depth, config.retrieve.depth)
        fusing = {"keep": max(looked, *shown, config.fuse.keep if all_fused else 0), "depth": depth,
                  "redundancy": config.used_redundancy, "keep_candidates": False}  # fmt: skip
        answer = Answer(
            arm.name,
            lists.search(known, reading, cuts_of(config, cuts)),
            frozenset(config.rewrite.planned),
            config.fuse.model_copy(update=fusing),
            documents,
            None if scored_by is None else list(rerankers).index(scored_by.label),
            config.rerank.combine,
            min(keep, config.fuse.keep, config.rerank.keep if reranked else keep),
            looked,
            min(looked, cut_from(config, cuts)),
            config.fuse.keep,
            config.retrieve.depth,
            arm_tasks(config, known.steps, arm.name, names) | judged,
            config.grade,
            config.web,
            _web_search(known),
        )
        answers.append(answer)
        systems[arm.name] = system(config, known.rewriting, answer)
    distinct = distinct_arms(arms, systems)
    kept = {arm.name: checked[arm.name] for arm in distinct if not arm.members}
    fingerprints = {}
    for name, known in kept.items():
        rewriting = rewriting_identity(known, parts[name])
        of_run = identity(known.config, known.indexes, rewriting, known.identity["rerank"], known.steps.identity())
        fingerprints[name] = fingerprint(of_run)
    work = SharedWork(
        tuple(texts.readings), lists.retrievers, tuple(lists.searches), tuple(rerankers.values()),
        tuple(answer for answer in answers if answer.arm in kept), sources,
    )  # fmt: skip
    return Compiled(distinct, work, fingerprints, {name: [one.name for one in parts[name]] for name in kept if parts[name]})


def _reranker(arm: Prepared, documents: str, opened: OpenedBy) -> ScoredBy:
    """Returns an arm's reranker over the documents of a retriever; how many are kept and how is no part of a score."""
    settings = arm.config.reranking.model_copy(update={"keep": 10, "combine": "blend"})
    identified_by = {name: value for name, value in arm.identity["rerank"].items() if name not in ("keep", "combine")}
    return ScoredBy(settings, identified_by, documents, opened.texts)


def _web_search(arm: Prepared) -> OpenedBy | None:
    """Returns the search engine of the web, which is asked where graded results do not suffice.

    Its answers are no answers of a retriever that asks the same: each search is a cost of one stage.
    """
    if (web := arm.config.web) is None:
        return None
    return OpenedBy(WEB_SEARCH, web.search, dict(arm.steps.searched or {}) | {"asked_by": "web"}, web.documents)


class ArmLists:
    """Searches, and the retrievers that make them."""

    def __init__(self, arms: Collection[Prepared]) -> None:
        self._states: dict[str, Any] = {}  # of indexes that may change in place, the same for all arms; None of others
        self.retrievers: dict[str, OpenedBy] = {}
        self.searches: list[Search] = []
        self._depths: dict[str, int] = {}  # deepest list, by retriever
        for arm in arms:
            for name in arm.config.retrieve.retrievers:
                key = _key(arm, name)
                self._depths[key] = max(self._depths.get(key, 0), arm.config.retrieve.depth)

    def search(self, arm: Prepared, reading: int, cuts: Cuts) -> int:
        """Returns the index of an arm's lists."""
        config = arm.config
        together = frozenset(name for name, one in config.retrieve.retrievers.items() if one.together)
        joining = FuseSettings(weights=config.fuse.weights, retriever_weights=config.fuse.retriever_weights)
        search = Search(
            reading,
            self.opened(arm),
            together,
            config.retrieve.routed(config.rewrite.planned),
            joining if together else FuseSettings(),
            cuts,
            min(config.fuse.depth, config.retrieve.depth),
            config.dense_retriever,
            frozenset(config.rewrite.planned) if together else None,
        )
        if search not in self.searches:
            self.searches.append(search)
        return self.searches.index(search)

    def opened(self, arm: Prepared) -> dict[str, str]:
        """Returns the keys of an arm's retrievers by name."""
        keys = {name: _key(arm, name) for name in arm.config.retrieve.retrievers}
        for name, key in keys.items():
            if key not in self.retrievers:
                settings, identified_by = _settings(arm.config, name), arm.indexes[name]
                facts = indexed_identities({name: arm.facts.get(name, {})})
                states = {
                    one.location: self._states.setdefault(one.location, facts.get(one.name, {}).get("state"))
                    for one in searched_indexes({name: settings}, {name: identified_by})
                }
                changing = {place: state for place, state in states.items() if state is not None}
                self.retrievers[key] = OpenedBy(name, settings, identified_by, self._depths[key], changing)
        return keys


def _settings(config: Config, name: str) -> RetrieverSettings:
    """Returns the settings of a retriever without those that a search has."""
    return config.retrieve.retrievers[name].model_copy(update={"together": False, "score_floor": None})


def _key(arm: Prepared, name: str) -> str:
    settings = _settings(arm.config, name)
    depth = arm.config.retrieve.depth if settings.is_approximate else None  # a deeper search looks at more, and finds others
    return digest([arm.indexes[name], settings.model_dump(), depth])
