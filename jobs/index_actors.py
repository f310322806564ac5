"""A corpus into Elasticsearch by Ray actors: each holds an encoder, encodes the blocks that it is given and loads them.

Worth it where there are several workers or accelerators: on one machine without one, a single process does as much.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cluster.session import PoolWish, Session
from cluster.stage import Line, Stage
from jobs.config import Config
from jobs.pipeline import code, device
from jobs.refusal import REFUSALS, cause
from retrievers.elastic_fill import Filled, Here, Passages, open_filling
from retrievers.retriever import RetrieverError

WAVE = 32  # blocks of some 1,000 documents that lie in Ray's memory at a time, more where there are many workers
BLOCKS = 2  # of a worker: one is encoded while the other is under way
LOADED = pa.schema([("shard", pa.int64()), *((name, pa.int64()) for name in Filled._fields)])


class Load:
    """A worker: a block of the corpus -> how many of its documents were loaded, how many texts encoded.

    Args:
        filling: `retrievers.elastic_build.Build.filling`.
        device: where the encoder runs.
    """

    def __init__(self, filling: Mapping[str, Any], device: str) -> None:
        self._settings = filling
        self._encode = Passages(filling["encoder"], device)

    def __call__(self, table: pa.Table) -> pa.Table:
        (batch,) = table.drop_columns(["shard"]).combine_chunks().to_batches()
        filling = open_filling(self._settings, encode=self._encode)
        try:
            filled = filling.add(batch)
            filling.drain()
        finally:
            filling.close()
        return pa.table([[value] for value in (table.column("shard")[0].as_py(), *filled)], schema=LOADED)


class Actors:
    """`retrievers.elastic_fill.Load` on the cluster that the config names; its retrieving workers' sizes count."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._begun = False

    def __call__(self, filling: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Filled]:
        if self._begun:  # what comes after the first pass has its vectors in the index already
            yield from Here()(filling, batches)
            return
        self._begun = True
        blocks = (_block(number, batch) for number, batch in enumerate(batches))
        head = next(blocks, None)
        if head is None:
            return
        session = Session(self._config.cluster.address, {"load": _wish(self._config)}, code())
        try:
            pool = session.pools["load"]
            settings = {"filling": shared(filling, pool.workers), "device": device(pool)}
            stage = Stage("load", Load, settings, head.schema, LOADED, pool, blocks=BLOCKS)
            line = Line([stage], 1, max(WAVE, 4 * pool.workers * BLOCKS))
            for row in line.run(itertools.chain([head], blocks)):
                line.committed(row["shard"])
                yield Filled(*(row[name] for name in Filled._fields))
            line.dismiss()
        except REFUSALS:
            raise
        except Exception as error:  # what a worker raised, in Ray's wrapping
            raise RetrieverError(f"index: a worker failed: {cause(error)}; look at the log") from error
        finally:
            session.close()


def shared(filling: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """The filling with which each block of so many workers has its share of the requests in flight."""
    share = max(1, filling["block"]["max_in_flight"] // (workers * BLOCKS))
    return {**filling, "in_flight": min(filling["in_flight"], share)}


def wanted(config: Config) -> bool:
    """Whether actors are worth their start: on a cluster, or where workers are asked for."""
    workers = config.cluster.retrieve
    return config.cluster.address != "local" or (workers.workers or 1) > 1 or bool(workers.gpus)


def _wish(config: Config) -> PoolWish:
    return PoolWish(**config.cluster.retrieve.model_dump(), device=config.dense_retriever is not None)


def _block(number: int, batch: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([batch])
    return table.add_column(0, "shard", pa.array([number] * batch.num_rows, pa.int64()))
