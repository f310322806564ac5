"""The rewriting stage: asks an LLM once what the arms need, and reads the texts of each.

Completions are stored as soon as they are made.
"""

from typing import Any

import pyarrow as pa

from jobs.chain.arms.requests import called, longest_answer, opened
from jobs.chain.block import LlmBlock
from jobs.chain.engines import open_engines
from jobs.chain.stages.gate import gated_rows
from jobs.chain.stages.reader import Reader
from jobs.chain.tables import ARM_LEFT_OUT, ARM_REWRITE, ARM_SELECTION, COUNT, NEED
from jobs.chain.worker import WorkerJob
from jobs.counts import GATE_QUERIES
from jobs.tables import with_appended, with_empty_columns


class Rewrite:
    """A worker of the rewriting stage: all requests to one common engine.

    It processes several shards at a time, so that the engine always has enough requests and no shard waits for the slowest
    request of another.
    """

    NEEDS: tuple[str, ...] = ("shard", "query_id", "query", "context", "values")
    ADDS = pa.schema(
        [
            ("rewrites", pa.list_(ARM_REWRITE)),
            ("selections", pa.list_(ARM_SELECTION)),
            ("guarded", pa.list_(ARM_LEFT_OUT)),
            ("needed", pa.list_(NEED)),
            ("counts", pa.list_(COUNT)),
        ]
    )

    def __init__(self, job: WorkerJob, engine: str | None = None) -> None:
        """Opens the engines of the readings whose common engine has the key `engine`."""
        names = called(job.work.readings)
        self._readings = [
            Reader(number, names[number], job.work)
            for number, reading in enumerate(job.work.readings)
            if reading.engines and reading.engines[""].key == engine
        ]
        engines = [engine for one in self._readings for engine in opened(one.reading)]
        most = max((longest_answer(one.reading.asked) for one in self._readings), default=0)
        self._engines = open_engines(job, "rewrite", engines, most)
        self.start_up = self._engines.start_up

    def close(self) -> None:
        """Closes the engines."""
        self._engines.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the texts of all readings, errors and costs."""
        table = with_empty_columns(table, self.ADDS)
        arms = [[arm for arm, _ in one.arms] for one in self._readings]
        block, gates = LlmBlock(table, self._engines, arms), gated_rows(table)
        gated = [[gates.get((one.number, row)) for row in range(len(block.queries))] for one in self._readings]
        steps = {
            index: reader.rewrite(block, self._engines.key, gates_of)
            for index, (reader, gates_of) in enumerate(zip(self._readings, gated, strict=True))
        }
        texts, selections, guarded = ([list[dict[str, Any]]() for _ in block.queries] for _ in range(3))
        with block.open():
            answers = block.run(steps)
        for index, read in answers.items():
            reader, arm = self._readings[index], {"arm": self._readings[index].reading.name}
            names = {name: names.error for (name, _), names in reader.called.items()}
            for row, written in enumerate(read):
                texts[row] += [vars(one) | arm for one in written.rewrites]
                guarded[row] += [one._asdict() | arm for one in written.guarded]
                if reader.reading.rewriting.selects or reader.reading.gate is not None:
                    chosen = {"query_type": written.choice.query_type, "strategies": list(written.choice.texts)}
                    selections[row].append(chosen | {"reason": written.choice.reason} | arm)
                for failure in written.failures:
                    component = names.get(failure.strategy, failure.strategy) or None
                    block.note_row(row, component, failure.reason, failure.message, failure.raw, failure.attempts)
                if (verdict := gated[index][row]) is not None:
                    block.count(index, GATE_QUERIES.key("sure" if verdict.sure else "unsure"))
        for name, more in {"rewrites": texts, "selections": selections, "guarded": guarded}.items():
            block.table = with_appended(block.table, name, more)
        return block.closed()


class RewriteFurther(Rewrite):
    """The stage of a further engine: it appends to the texts of those before."""

    NEEDS = (*Rewrite.NEEDS, "rewrites", "selections", "guarded", "needed", "counts")
    ADDS = pa.schema([])
