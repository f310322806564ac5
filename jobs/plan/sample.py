"""`plan --sample N`: a run of N queries, drawn from those of which something is missing; the store keeps what it pays for.

It is a run of its own, `<name>-sample`, with a log of its own beside the runs of the config, which goes when it is finished.
What it has cost says what the others will cost, within 95 %.
"""

import io
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from jobs.config.settings import AblateSettings
from jobs.job.prepare import Prepared, prepare
from jobs.log.settings import LogSettings
from jobs.plan.work import Component, component_of
from jobs.run.draft import PlannedQueries, gold_of_queries
from jobs.run.job import run_of
from jobs.run.run import run
from jobs.runs.folder import SAMPLE, RunFolder, open_run, sample_log
from jobs.terminal.live_display import LiveDisplay

SEED = 0


class PaidSample(NamedTuple):
    """Queries that were paid for."""

    folder: str  # of their run
    queries: int
    usd: float | None  # None without prices
    work: Mapping[Component, list[float]]  # what each of them has lacked


def pay_for_sample(
    prepared: Prepared, queries: PlannedQueries, ids: Collection[str], size: int, progress: LiveDisplay
) -> PaidSample | None:
    """Runs `size` of the queries of a run of which something is missing, and returns what they have cost; None: there are none.

    Raises:
        ConfigError: There is no store that would keep what is paid for.
        Stopped: A limit of the config has ended it; what it has paid for is kept.
    """
    config = prepared.config
    if config.store_folder is None:
        problem = "there is no store (store: null), so that what it pays for would be lost; name one, or leave --sample out"
        raise ConfigError("argument", f"--sample {size}: {problem}")
    drawn = random.Random(SEED).sample(sorted(ids), min(size, len(ids)))
    if not drawn:
        return None
    name = f"{config.name}{SAMPLE}"
    key = sample_log(prepared.output, name, _log(prepared, queries, drawn))
    log = LogSettings(
        path=prepared.output.url(key),
        query_column=config.log.query_column,
        context_column=config.log.context_column,
        max_chars=config.log.max_chars,
    )
    update = {"name": name, "log": log, "ablate": AblateSettings(), "label": None}
    job = run_of(prepare(config.model_copy(update=update), prepared.config_file))
    progress.phase(f"paying for {len(drawn)} queries")
    run(replace(job, gold=gold_of_queries(prepared, queries)), progress, f"the same plan, with --sample {size}")
    prepared.output.delete(key)  # until then the same plan goes on with it
    return _paid(open_run(job.prepared.storage.root), job.prepared)


def _log(prepared: Prepared, queries: PlannedQueries, ids: Collection[str]) -> bytes:
    """Returns a log of queries, a row each, with the columns that the config reads."""
    wanted, tables = pa.array(sorted(ids), pa.string()), list[pa.Table]()
    for shard in queries.plan.shards:
        with queries.storage.open(shard.key) as file:
            table = pq.ParquetFile(file).read_row_group(shard.row_group)
        tables.append(table.filter(pc.is_in(table.column("query_id"), wanted)))
    rows = pa.concat_tables(tables)
    columns, context = {prepared.config.log.query_column: rows.column("query")}, prepared.config.log.context_column
    if context is not None:
        columns[context] = rows.column("context")
    if prepared.columns.values:
        values = [dict(one or ()) for one in rows.column("values").to_pylist()]
        columns |= {name: pa.array([one.get(name) for one in values], pa.string()) for name in prepared.columns.values}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def _paid(folder: RunFolder, prepared: Prepared) -> PaidSample:
    query_ids = dict[str, None]()
    paid: dict[Component, Counter[str]] = defaultdict(Counter)
    for file in (file for manifest in folder.manifests for file in manifest.files.get("costs", ())):
        with folder.storage.open(file.key) as source:
            rows = pq.read_table(source).to_pylist()
        for row in (row for row in rows if row["query_id"] is not None):
            component, number = component_of(row)
            query_ids[row["query_id"]] = None
            paid[component][row["query_id"]] += number
    usd = None if prepared.prices is None else prepared.prices.usd(folder.spent)
    values = {component: [float(of[query_id]) for query_id in query_ids] for component, of in paid.items()}
    return PaidSample(folder.storage.root, len(query_ids), usd, values)
