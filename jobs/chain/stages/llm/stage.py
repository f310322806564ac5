"""The stages in which LLMs are asked about the results of arms."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from jobs.chain.block import LlmBlock
from jobs.chain.engines import open_engines
from jobs.chain.stages.documents import planned_documents
from jobs.chain.worker import WorkerJob
from jobs.tables import with_columns


class LlmStage(ABC):
    """A worker of a stage in which LLMs are asked, with all engines that it asks and the documents that it shows them."""

    STAGE: ClassVar[str]  # value of `costs.stage`
    ADDS: ClassVar[pa.Schema]

    def __init__(self, job: WorkerJob) -> None:
        """Opens the engines, and the documents of the arms of which they are shown some."""
        work = job.work
        self._work, self._arms, tasks = work, work.doing(self.STAGE), work.tasks(self.STAGE)
        most = max((int(task.decoding.get("max_tokens", 0)) for task in tasks), default=0)
        self._engines = open_engines(job, self.STAGE, [task.engine for task in tasks], most)
        self.start_up = self._engines.start_up
        read = {work.answers[number].documents for number in self.shown()}
        self._documents = {key: planned_documents(work.retrievers[key]) for key in read}

    def shown(self) -> Iterable[int]:
        """Returns the arms of which documents are shown, by index."""
        return self._arms

    def close(self) -> None:
        """Closes the engines."""
        self._engines.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the columns of the stage, errors, counts and costs."""
        arms = [(answer.arm,) for answer in self._work.answers]
        block = LlmBlock(table, self._engines, arms)
        with block.open():
            rows = self.rows(block)
        columns = [pa.array(of, field.type) for of, field in zip(rows, self.ADDS, strict=True)]
        block.table = with_columns(block.table, self.ADDS, columns)
        return block.closed()

    @abstractmethod
    def rows(self, block: LlmBlock) -> tuple[Any, ...]:
        """Returns the values of each column that the stage makes, row by row."""
