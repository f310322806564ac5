"""Arguments of a job's workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.store.files import NO_STORE, StoreFiles

if TYPE_CHECKING:  # most workers ask no LLM
    from cluster.prices import Prices


@dataclass(frozen=True)
class WorkerJob:
    """The job of a worker.

    Attributes:
        work: The work of all arms.
        run: The job's folder.
        store: Has facts of other jobs.
        start: The number of this start of the job, from 1.
        gpus: The number of accelerators of the worker.
        prices: Of the job, if it has a budget.
        gold: query_id -> gold answers, for the worker that judges.
        engines: The class of its `Engines`: in a plan the store alone answers. None: `Engines`.
    """

    work: SharedWork
    run: str
    store: StoreFiles = NO_STORE
    start: int = 1
    gpus: float = 0.0
    prices: Prices | None = None
    gold: Mapping[str, Sequence[str]] = field(default_factory=dict)
    engines: Callable[..., Any] | None = None

    @property
    def device(self) -> str:
        """Returns the torch device of the worker; Ray shows each worker its own accelerator as the first."""
        return "cuda:0" if self.gpus else "cpu"
