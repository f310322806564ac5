"""The work of a run, as its config has it, over indexes that nobody opens."""

from typing import Any

from jobs.chain.arms.arms import RUN
from jobs.chain.arms.resources import OpenedBy, ScoredBy
from jobs.chain.arms.shared_work import Answer, Reading, Search, SharedWork
from jobs.chain.cuts import Cuts
from jobs.config.config import Config
from retrievers.settings import FuseSettings
from rewriters.rewriter import Rewriting


def one_arm(config: Config, cuts: Cuts | None = None, **changes: Any) -> SharedWork:
    """Returns the work of a run whose retrievers are known by their names; `changes`: of its answer."""
    retrievers = {name: OpenedBy(name, one, {}, config.retrieve.depth) for name, one in config.retrieve.retrievers.items()}
    together = frozenset(name for name, one in config.retrieve.retrievers.items() if one.together)
    planned, names = frozenset(config.rewrite.planned), {name: name for name in retrievers}
    search = Search(
        0, names, together, config.retrieve.routed(planned), config.fuse if together else FuseSettings(), cuts or Cuts(),
        min(config.fuse.depth, config.retrieve.depth), config.dense_retriever,
        planned if together else None,
    )  # fmt: skip
    reranked = config.rerank.kind != "none"
    documents = config.retrieve.text_retriever
    scored = (ScoredBy(config.reranking, {}, documents, ""),) if reranked else ()
    keep = min(config.fuse.keep, config.rerank.keep) if reranked else config.fuse.keep
    values: dict[str, Any] = {
        "arm": RUN, "search": 0, "strategies": planned, "documents": documents, "reranker": 0 if reranked else None,
        "fuse": config.fuse.model_copy(update={"redundancy": config.used_redundancy}), "combine": config.rerank.combine,
        "keep": keep, "looked": keep, "cut_from": 0,
        "candidates": config.fuse.keep, "retrieved": config.retrieve.depth,
    }  # fmt: skip
    return SharedWork(
        (Reading(RUN, Rewriting(()), Rewriting(())),), retrievers, (search,), scored, (Answer(**values | changes),), True,
        config.retrieve.keep_runs, config.fuse.keep_candidates,
    )  # fmt: skip
