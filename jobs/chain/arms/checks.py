"""Checks of arms: each as a run of it alone is checked; what equal settings decide is read once for all arms."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from cluster.errors import ClusterError, ConfigError, RetrieverError, RewriterError
from cluster.run.pool_sizes import PoolRequest
from jobs.chain.arms.arms import FULL, Arm
from jobs.chain.arms.resources import digest
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.given_lists import with_given_lists
from jobs.job.indexes import check_depths, check_documents, index_identities, read_facts
from jobs.job.keys import identity
from jobs.job.pools import with_precisions
from jobs.job.prepare import Prepared, reranking_identity, resolved_rewriting
from jobs.job.rewrite import read_rewriting
from jobs.job.steps import ready_steps
from rewriters.engines.settings import EngineSettings

Value = TypeVar("Value")
_OF_INDEXES = ("index-missing", "index-other")
_OWN_INDEX = "give the arm an index of its own (retrieve.retrievers.NAME.index), which `dmqr index` builds from corpus.path"


class ArmChecks:
    """Checks arms, and keeps what was read for equal settings."""

    def __init__(self, requested: Mapping[str, PoolRequest]) -> None:
        """Begins with nothing read; `requested`: the pools of all arms, whose devices decide precisions."""
        self._known, self._requested = dict[str, Any](), requested

    def check(self, arm: Arm, prepared: Prepared) -> Prepared:
        """Returns an arm after the checks that a run of it alone makes; `prepared` is the ablation.

        Raises:
            ConfigError, RewriterError, RetrieverError, ClusterError: It cannot be run; the line begins with its name.
        """
        with _naming(arm):
            config = self.with_precisions(arm.config)
            searched = [*config.retrieve.retrievers, *config.retrieve.retrievers.values()]
            indexes = self._once("indexes", searched, lambda: index_identities(config))
            facts = self._once("facts", searched, lambda: read_facts(config, indexes))
            check_depths(config, facts)
            context, rewrite = config.log.context_column, config.rewrite.model_copy(update={"gate": None})
            settings, rewriting, identified_by, _ = self._once(
                "rewriting", [rewrite, context], lambda: resolved_rewriting(config, read_rewriting(config), self._resolve)
            )
            if config.reads_texts:
                self._once("documents", searched, lambda: check_documents(config, indexes))
            reranking = self._once("reranking", [config.reranking], lambda: reranking_identity(config))
            asked = [config.iterate, config.grade, config.web, config.answer, config.judge, config.rewrite.engine, context]
            steps = self._once("steps", asked, lambda: ready_steps(config, self._resolve))
            known = identity(config, indexes, identified_by, reranking, steps.identity())
            return replace(
                prepared, config=config, indexes=indexes, facts=facts, engine=settings, rewriting=rewriting, identity=known,
                steps=steps,
            )  # fmt: skip

    def with_precisions(self, config: Config) -> Config:
        """Returns a config with the precision of its models."""
        deciding = [config.retrieve, config.rerank, bool(config.rewrite.planned)]
        precise = self._once("config", deciding, lambda: with_given_lists(with_precisions(config, self._requested)))
        return config.model_copy(update={"retrieve": precise.retrieve, "rerank": precise.rerank})

    def _resolve(self, settings: EngineSettings) -> tuple[EngineSettings, dict[str, Any]]:
        return self._once("engine", [settings], lambda: engine.resolve(settings))

    def _once(self, name: str, settings: list[Any], make: Callable[[], Value]) -> Value:
        key = digest([name, *(one.model_dump() if isinstance(one, BaseModel) else one for one in settings)])
        if key not in self._known:
            self._known[key] = make()
        value: Value = self._known[key]
        return value


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
