"""Loading of a corpus into Elasticsearch by a pool of Ray actors, each with its own encoder.

Worthwhile with several workers or accelerators; on one machine without accelerator a single process is as fast.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cluster.cause import cause
from cluster.errors import DmqrError, RetrieverError
from cluster.run.session import IN_PROCESS, Session
from cluster.run.spread import map_on_actors
from jobs.config.config import Config
from jobs.job.paths import package_folders
from jobs.job.pools import device
from retrievers.elastic.bulk import PassageEncoder, load_corpus

BLOCKS = 2  # of some 1,000 documents, per worker at a time: one is encoded while the other is sent


class LoadWorker:
    """An actor that loads blocks of the corpus."""

    def __init__(self, loader: Mapping[str, Any], device: str) -> None:
        """Loads the encoder on a torch device; `loader`: `retrievers.elastic.build.ElasticBuild.loader_settings`."""
        self._settings = loader
        self._encode = PassageEncoder(loader["encoder"], device)

    def __call__(self, table: pa.Table) -> Counter[str]:
        (counts,) = load_corpus(self._settings, table.combine_chunks().to_batches(), self._encode)
        return counts


def load_on_actors(config: Config, loader: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Counter[str]]:
    """Loads batches as a `retrievers.elastic.bulk.BatchLoader`, with the pool settings of `cluster.retrieve`.

    Raises RetrieverError if a worker fails.
    """
    request = config.cluster.retrieve.pool_request(can_use_gpu=True)
    session = Session(config.cluster.joined or "local", {"load": request}, package_folders())
    try:
        pool = session.pools["load"]
        settings = {"loader": share_requests(loader, pool.workers), "device": device(pool)}
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        yield from map_on_actors(LoadWorker, settings, pool, tables, BLOCKS)
    except DmqrError:
        raise
    except Exception as error:  # of a worker, wrapped by Ray
        raise RetrieverError("index-other", f"index: a worker failed: {cause(error)}; look at the log") from error
    finally:
        session.close()


def share_requests(loader: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Returns the loader settings with the job's requests in flight divided among the blocks of all workers."""
    share = max(1, loader["connection"].max_in_flight // (workers * BLOCKS))
    return {**loader, "in_flight": min(loader["in_flight"], share)}


def uses_actors(config: Config) -> bool:
    """Returns True if actors are worth their start: on a cluster, or with configured workers; never without Ray."""
    workers = config.cluster.retrieve
    several = workers.workers is not None and workers.workers != 1
    return config.cluster.joined is not None or (config.cluster.address != IN_PROCESS and (several or bool(workers.gpus)))
