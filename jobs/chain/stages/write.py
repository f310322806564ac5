"""The last stage: writes one shard's rows to the stored tables and commits them with one manifest."""

import io
import json
import time
import uuid
from collections import Counter
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster import costs
from cluster.run.shards import File, Manifest, commit, parquet_options, write_table
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import Storage, open_storage
from cluster.storage.s3_client import take_traffic
from jobs.chain.counts import BlockErrors, one_arm_counts
from jobs.chain.needs import needed_counts
from jobs.chain.stages.candidates import Candidates
from jobs.chain.stages.stored_rows import candidates_table, flattened, of_arms, results_of, scores_table, stored_table
from jobs.chain.tables import ARM_STORED
from jobs.chain.worker import WorkerJob
from jobs.counts import arm_key
from jobs.tables import COMMITTED, ELAPSED, STORED, error_row, unnested, with_appended

_ROW_GROUP = 50_000  # rows: one of an arm's own has a few hundred, and takes longer to begin than to fill


class Write:
    """A worker of the last stage."""

    NEEDS = ("shard", "query_id", "log_count", "rewrites", "selections", "guarded", "stored", "documents", "fused",
             "web", "needed", "counts", "costs", "errors", "overhead")  # fmt: skip
    GIVES = COMMITTED

    def __init__(self, job: WorkerJob) -> None:
        self._work, self._start = job.work, job.start
        self._schemas = ARM_STORED if job.work.only is None else STORED
        self._storage = open_storage(job.run)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Writes and commits the shard; returns one row of COMMITTED."""
        began, work, shard = time.perf_counter(), self._work, shard_of(table)
        assert pc.count_distinct(table.column("shard")).as_py() == 1, "two shards in one block"
        files: dict[str, list[File]] = {}  # those that earlier stages have written among them
        for file in unnested(table, "stored")[1].to_pylist():
            files.setdefault(file.pop("table"), []).append(File(**file))
        block = Candidates(table, work)
        if work.only:
            note = error_row("fuse", None, "no_hits", "no list that takes part in fusion has a hit for this query")
            table = with_appended(table, "errors", [[] if count else [note] for count in block.lengths(0).tolist()])
        ids = table.column("query_id").combine_chunks()
        columns = {name: flattened(ids, table, name) for name in ("rewrites", "selections", "costs", "errors")}
        of_queries = pc.invert(pc.starts_with(columns["costs"]["component"], costs.START_UP))
        columns["costs"]["query_id"] = pc.if_else(of_queries, columns["costs"]["query_id"], pa.scalar(None, pa.string()))
        tables = {name: stored_table(self._schemas[name], of) for name, of in columns.items()}
        # and for each query the seconds since its shard was read, with all waits
        read = [one["amount"] for one in unnested(table, "overhead")[1].to_pylist() if one["quantity"] == ELAPSED]
        waited = [costs.entry(ELAPSED, "query", start=self._start, latency=max(0.0, time.time() - one)) for one in read]
        rows = [{"query_id": one} | entry for one in ids.to_pylist() for entry in waited[:1]]
        tables["costs"] = pa.concat_tables([tables["costs"], pa.Table.from_pylist(rows, self._schemas["costs"])])
        of_results, files_of_results = self._results(shard, ids, block)
        errors = BlockErrors(table)
        counts = errors.losses()
        counts.update(of_results)
        counts.update(one_arm_counts(table, tables, errors, len(work.only.strategies)) if work.only else {})
        counts["queries"] = table.num_rows
        counts["log_rows"] = pc.sum(table.column("log_count")).as_py()
        counts["rewrites"] = tables["rewrites"].num_rows
        for entry in unnested(table, "counts")[1].to_pylist():
            counts[entry["name"]] += entry["count"]
        counts.update({} if work.only else needed_counts(table))
        files |= files_of_results
        if work.keep_candidates:
            tables["candidates"] = candidates_table(ids, block, work.answers[0].candidates)
        if block.scored:
            tables["scores"] = scores_table(self._schemas["scores"], ids, block, work)
        of_llms = [name for name in ("rounds", "grades", "corrections", "answers", "judgements") if name in table.column_names]
        tables |= {name: of_arms(ids, table, work, name) for name in of_llms}
        if "corrections" in tables:
            counts["web_asked"] = pc.count(tables["corrections"].column("web_query")).as_py()
        counts.update({name: tables[name].num_rows for name in ("answers", "judgements") if name in tables})
        for name, rows in tables.items():
            if rows.num_rows:
                files.setdefault(name, []).append(write_table(self._storage, name, shard, rows))
        return self._committed(table, files, dict(counts), errors.first_failed(), began)

    def _results(self, shard: int, ids: pa.Array, block: Candidates) -> tuple[Counter[str], dict[str, list[File]]]:
        """Writes the results of all arms and what stands behind them, one arm after the other; returns counts and files."""
        counts: Counter[str] = Counter()
        written = {name: _RowGroups(name, shard) for name in ("results", "tails")}
        for number, answer in enumerate(self._work.answers):
            results_of_arm, behind = results_of(ids, block, self._work, number)
            queries = pc.count_distinct(results_of_arm.column("query_id")).as_py()
            if self._work.only is None:
                counts[arm_key(answer.arm, "queries_with_results")] += queries
                counts[arm_key(answer.arm, "no_hits")] += block.rows - queries
                counts["arms_with_results"] += queries
            else:
                counts["queries_with_results"] += queries
            written["results"].add(results_of_arm)
            written["tails"].add(behind)
        counts["results"] = written["results"].rows
        return counts, {name: [of.stored(self._storage)] for name, of in written.items() if of.rows}

    def _committed(
        self, table: pa.Table, files: dict[str, list[File]], counts: dict[str, int], failed: dict[str, list[str]], began: float
    ) -> pa.Table:
        """Commits a shard; returns one row of COMMITTED."""
        shard, entries = shard_of(table), unnested(table, "costs")[1]
        seconds: dict[str, float] = {}
        requests: dict[str, dict[str, float]] = {}
        for entry in unnested(table, "overhead")[1].to_pylist():
            stage, name, amount = entry["stage"], entry["quantity"], entry["amount"]
            if name == "seconds":
                seconds[stage] = seconds.get(stage, 0.0) + amount
            elif name != ELAPSED:
                own = requests.setdefault(stage, {})
                own[name] = own.get(name, 0) + int(amount)
        if sent := take_traffic():
            requests["write"] = sent
        seconds["write"] = time.perf_counter() - began
        spent = costs.totals(entries), seconds, costs.by_start(entries)
        mine = Manifest(shard, self._start, files, counts, *spent, requests, failed)
        manifest = commit(self._storage, mine)
        after = take_traffic()
        for amounts in requests.values() if manifest is not mine else ():
            after = {name: after.get(name, 0) + amounts.get(name, 0) for name in after.keys() | amounts.keys()}
        return pa.table(
            {"shard": [shard], "manifest": [json.dumps(asdict(manifest))], "traffic": [json.dumps(after)]}, schema=COMMITTED
        )


class _RowGroups:
    """A file of one table, written one row group after the other: memory holds one group's rows."""

    def __init__(self, table: str, shard: int) -> None:
        self._key, self._sink = f"{table}/shard-{shard:06d}-{uuid.uuid4().hex[:12]}.parquet", io.BytesIO()
        self._writer = pq.ParquetWriter(self._sink, ARM_STORED[table], **parquet_options(ARM_STORED[table]))
        self._group, self.rows = list[pa.Table](), 0

    def add(self, rows: pa.Table) -> None:
        self._group.append(rows)
        self.rows += rows.num_rows
        if sum(one.num_rows for one in self._group) >= _ROW_GROUP:
            self._write()

    def stored(self, storage: Storage) -> File:
        if self._group:
            self._write()
        self._writer.close()
        data = self._sink.getvalue()
        storage.put(self._key, data)
        return File(self._key, self.rows, len(data))

    def _write(self) -> None:
        self._writer.write_table(pa.concat_tables(self._group))
        self._group = []
        heartbeat()
