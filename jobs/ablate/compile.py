"""The compiler of an ablation: from the arms to the work that they share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from jobs.ablate.arms import FULL, Arm
from jobs.ablate.faults import naming
from jobs.ablate.shared_work import Answer, Asking, OpenedBy, Reading, ScoredBy, Search, SharedWork, digest
from jobs.config.config import Config
from jobs.evaluate.looked import cut_from
from jobs.keys import fingerprint, identity
from jobs.pools.requested import with_precisions
from jobs.run import engine
from jobs.run.prepare import check_documents, index_identities, reranking_identity, resolved_rewriting
from jobs.run.rewriting import read_rewriting
from retrievers.settings import FuseSettings
from rewriters.engines.settings import EngineSettings, RecordedSettings
from rewriters.pool import named
from rewriters.rewriter import Rewriting
from rewriters.settings import SelectAdaptive, SelectAll

Value = TypeVar("Value")
_ALL = SelectAll(kind="all")


@dataclass(frozen=True)
class Compiled:
    """The arms and the work that they share."""

    arms: tuple[Arm, ...]
    work: SharedWork
    fingerprints: Mapping[str, str]
    """Arm -> the fingerprint of a run of it alone; an oracle has none."""

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what determines the results of all arms, as JSON-able values."""
        arms = [[one.name, one.sample, self.fingerprints.get(one.name), list(one.members)] for one in self.arms]
        kept = [[answer.keep, answer.looked] for answer in self.work.answers]
        return {"arms": arms, "keep": kept, "sources": self.work.keep_sources}

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the columns of the log that prompts or selections use, sorted."""
        return tuple(sorted({name for reading in self.work.readings for name in reading.rewriting.columns}))


def compile_arms(arms: Sequence[Arm], keep: int, *, sources: bool) -> Compiled:
    """Returns the arms with the work that they share.

    Args:
        arms: By `jobs.ablate.arms.arms_of`.
        keep: Documents that are written per query and arm: results, and behind them those that measures read.
        sources: Whether the lists that a result comes from are written.

    Raises:
        ConfigError, RewriterError, RetrieverError: An arm cannot be run.
    """
    facts = _Facts()
    answered = [(arm, facts.checked(arm)) for arm in arms if not arm.members]
    texts = _Texts(facts)
    for arm, config in answered:
        texts.want(arm, config)
    texts.make()
    lists = _Lists(facts, answered)
    rerankers = _Distinct[ScoredBy]()
    answers, fingerprints = [], {}
    for arm, config in answered:
        reading = texts.reading(arm, config)
        identified_by = facts.rewriting(config)[2]
        reranked = config.rerank.kind != "none"
        documents = lists.documents(config)
        kept = min(keep, config.rerank.keep) if reranked else min(keep, config.fuse.keep)
        drops = config.fuse.duplicates == "drop"  # among the candidates, so that lists end with them
        looked = min(keep, config.fuse.keep) if drops else keep
        cuts = texts.cuts(reading)
        answers.append(
            Answer(
                arm.name,
                lists.search(config, reading, cuts),
                frozenset(config.rewrite.planned),
                _fusing(config, max(looked, config.fuse.keep if reranked or arm.name == FULL or drops else 0)),
                documents,
                rerankers.place(*facts.reranker(config, documents, lists.retrievers[documents])) if reranked else None,
                config.rerank.combine,
                kept,
                looked,
                min(looked, cut_from(config, cuts)),
                config.fuse.keep,
            )
        )
        fingerprints[arm.name] = fingerprint(identity(config, facts.indexes(config), identified_by, facts.reranking(config)))
    work = SharedWork(
        dict(facts.engines), tuple(texts.askings.values), tuple(texts.readings.values), dict(lists.retrievers),
        tuple(lists.searches.values), tuple(rerankers.values), tuple(answers), sources,
    )  # fmt: skip
    return Compiled(tuple(arms), work, fingerprints)


class _Distinct(Generic[Value]):
    """Values in order of first use, each made once."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self.values: list[Value] = []

    def place(self, key: Hashable, make: Callable[[], Value]) -> int:
        """Returns the index of the value of a key."""
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(make())
        return self._places[key]


class _Facts:
    """What is read once for all arms that have the same settings."""

    def __init__(self) -> None:
        self.engines: dict[str, tuple[EngineSettings, str]] = {}  # by the hash of settings and identity
        self._known: dict[str, Any] = {}
        self._resolve = cache(lambda text: engine.resolve(self._known[text]))

    def checked(self, arm: Arm) -> Config:
        """Returns the config of an arm with the precision of its models, after the checks that a run of it alone makes."""
        with naming(arm):
            config = self.config(arm.config)
            indexes = self.indexes(config)
            key = digest(["documents", indexes, [one.model_dump() for one in config.retrieve.retrievers.values()]])
            if config.reads_texts:
                self._once(key, lambda: check_documents(config, indexes))
            self.rewriting(config)
            self.reranking(config)
            return config

    def config(self, config: Config) -> Config:
        """Returns a config with the precision of its models."""
        key = digest(["config", config.retrieve.model_dump(), config.rerank.model_dump(), bool(config.rewrite.planned)])
        made = self._once(key, lambda: with_precisions(config))
        return config.model_copy(update={"retrieve": made.retrieve, "rerank": made.rerank})

    def rewriting(self, config: Config) -> tuple[str, Rewriting, dict[str, Any]]:
        """Returns the key of an arm's engine, what it rewrites with, and its identity."""
        key = digest(["rewriting", config.rewrite.model_dump(), config.log.context_column])
        return self._once(key, lambda: self._resolved(config))

    def indexes(self, config: Config) -> dict[str, dict[str, Any]]:
        """Returns retriever -> identity of its index."""
        key = digest(["indexes", {name: one.model_dump() for name, one in config.retrieve.retrievers.items()}])
        return self._once(key, lambda: index_identities(config))

    def reranking(self, config: Config) -> dict[str, Any]:
        """Returns the identity of an arm's reranker."""
        return self._once(digest(["reranking", config.reranking.model_dump()]), lambda: reranking_identity(config))

    def reranker(self, config: Config, documents: str, index: OpenedBy) -> tuple[str, Callable[[], ScoredBy]]:
        """Returns what tells an arm's reranker over the documents of an index from others, and what makes it."""
        settings = config.reranking.model_copy(update={"keep": 10, "combine": "blend"})  # no part of a score
        identified_by = {name: value for name, value in self.reranking(config).items() if name not in ("keep", "combine")}
        typos = config.retrieve.typos
        key = digest([settings.model_dump(), identified_by, index.texts, typos.model_dump() if typos else None])
        return key, lambda: ScoredBy(settings, identified_by, documents, index.texts, index.corpus, typos)

    def _resolved(self, config: Config) -> tuple[str, Rewriting, dict[str, Any]]:
        settings, rewriting, identified_by, _ = resolved_rewriting(config, read_rewriting(config), self._resolved_engine)
        return self._key(settings, identified_by.get("engine")), rewriting, identified_by

    def _resolved_engine(self, settings: EngineSettings) -> tuple[EngineSettings, dict[str, Any]]:
        key = digest(settings.model_dump())
        self._known[key] = settings
        return self._resolve(key)

    def _key(self, settings: EngineSettings | None, identified_by: Any) -> str:
        if settings is None:
            return ""
        key = digest([settings.model_dump(), identified_by])
        self.engines[key] = settings, digest(identified_by)
        return key

    def _once(self, key: str, make: Callable[[], Value]) -> Value:
        if key not in self._known:
            self._known[key] = make()
        value: Value = self._known[key]
        return value


@dataclass
class _Wanted:
    """Requests that arms share."""

    config: Config  # of the first of these arms
    sample: int
    entries: dict[str, Any] = field(default_factory=dict)  # strategy -> entry of the config, of all arms
    alike: dict[str, None] = field(default_factory=dict)  # strategies of the arms that read every query alike
    first_alike: str = ""


class _Texts:
    """Requests, and what is read from their answers."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._wanted: dict[str, _Wanted] = {}
        self.askings, self.readings = _Distinct[Asking](), _Distinct[Reading]()
        self.readings.place("", lambda: Reading("original", -1, Rewriting(())))

    def want(self, arm: Arm, config: Config) -> None:
        """Notes the requests of an arm."""
        if not config.rewrite.planned:
            return
        wanted = self._wanted.setdefault(self._key(arm, config), _Wanted(config, arm.sample))
        for entry in config.rewrite.strategies:
            wanted.entries.setdefault(named(entry).name, entry)
        if _reads_alike(config):
            wanted.alike |= dict.fromkeys(config.rewrite.planned)
            wanted.first_alike = wanted.first_alike or arm.name

    def make(self) -> None:
        """Makes the requests of all arms."""
        for key, wanted in self._wanted.items():
            engine_key, rewriting, _ = self._facts.rewriting(_with_pool(wanted.config, list(wanted.entries.values())))
            recorded = isinstance(wanted.config.rewrite.engine, RecordedSettings)  # says the same each time
            sample = 0 if recorded else wanted.sample
            self.askings.place(key, lambda of=rewriting, by=engine_key, n=sample: Asking(of, by, n))  # type: ignore[misc]

    def reading(self, arm: Arm, config: Config) -> int:
        """Returns the index of an arm's texts."""
        if not config.rewrite.planned:
            return 0
        key = self._key(arm, config)
        wanted, asking = self._wanted[key], self.askings.place(key, _never)
        if _reads_alike(config):
            pool = [entry for name, entry in wanted.entries.items() if name in wanted.alike]
            own = self._facts.rewriting(_with_pool(config, pool))[1]
            return self.readings.place((key, ""), lambda: Reading(wanted.first_alike, asking, own))
        own = self._facts.rewriting(config)[1]
        return self.readings.place((key, digest(config.rewrite.model_dump())), lambda: Reading(arm.name, asking, own))

    def cuts(self, reading: int) -> Any:
        """Returns the cuts of the strategies of a reading."""
        return self.readings.values[reading].rewriting.cuts

    def _key(self, arm: Arm, config: Config) -> str:
        """Returns what tells the requests of an arm from those of others: not the strategies, unless the LLM chooses."""
        rewrite = config.rewrite
        pool = config.rewrite.planned if isinstance(rewrite.select, SelectAdaptive) else None
        told = rewrite.model_dump(exclude={"strategies", "select", "store"})
        return digest([arm.sample, told, pool, rewrite.select.model_dump() if pool else None])


class _Lists:
    """Searches, and the retrievers that make them."""

    def __init__(self, facts: _Facts, answered: Sequence[tuple[Arm, Config]]) -> None:
        self._facts = facts
        self.retrievers: dict[str, OpenedBy] = {}
        self.searches = _Distinct[Search]()
        self._depths: dict[str, int] = {}  # deepest list, by retriever
        for _, config in answered:
            for name in config.retrieve.retrievers:
                key = self._key(config, name)
                self._depths[key] = max(self._depths.get(key, 0), config.retrieve.depth)

    def search(self, config: Config, reading: int, cuts: Any) -> int:
        """Returns the index of an arm's lists."""
        retrievers = {name: self._open(config, name) for name in config.retrieve.retrievers}
        together = frozenset(name for name, one in config.retrieve.retrievers.items() if one.together)
        joining = FuseSettings(weights=config.fuse.weights, retriever_weights=config.fuse.retriever_weights)
        fuse = joining if together else FuseSettings()
        depth = min(config.fuse.depth, config.retrieve.depth)
        typos = config.retrieve.typos.model_dump() if config.retrieve.typos else None
        key = digest([reading, retrievers, sorted(together), config.retrieve.routes, fuse.model_dump(), depth, typos,
                      sorted(config.rewrite.planned) if together else None])  # fmt: skip
        return self.searches.place(
            key,
            lambda: Search(
                reading, retrievers, together, config.retrieve.routes, fuse, cuts, depth, config.dense_retriever,
                config.retrieve.typos, frozenset(config.rewrite.planned) if together else None,
            ),
        )  # fmt: skip

    def documents(self, config: Config) -> str:
        """Returns the key of the retriever whose index has the texts of an arm's documents."""
        return self._open(config, next(iter(config.retrieve.retrievers)))

    def _open(self, config: Config, name: str) -> str:
        key = self._key(config, name)
        if key not in self.retrievers:
            settings = config.retrieve.retrievers[name].model_copy(update={"together": False})
            self.retrievers[key] = OpenedBy(name, settings, self._facts.indexes(config)[name], self._depths[key])
        return key

    def _key(self, config: Config, name: str) -> str:
        settings = config.retrieve.retrievers[name].model_copy(update={"together": False})
        return digest([self._facts.indexes(config)[name], settings.model_dump()])


def _with_pool(config: Config, entries: list[Any]) -> Config:
    """Returns a config whose strategies rewrite every query, unless the LLM chooses."""
    select = config.rewrite.select if isinstance(config.rewrite.select, SelectAdaptive) else _ALL
    return config.model_copy(update={"rewrite": config.rewrite.model_copy(update={"strategies": entries, "select": select})})


def _reads_alike(config: Config) -> bool:
    """Returns whether an arm reads the same texts of a strategy as every other arm with the same requests."""
    return not config.rewrite.selects and config.rewrite.guards.near_duplicates == "count"


def _fusing(config: Config, keep: int) -> FuseSettings:
    """Returns the fusion of an arm over the lists of all strategies that share them."""
    changed = {"keep": keep, "depth": min(config.fuse.depth, config.retrieve.depth), "redundancy": config.used_redundancy}
    return config.fuse.model_copy(update=changed)


def _never() -> Any:
    raise AssertionError("it is there")
