"""The last stage of an ablation: orders and cuts each arm, writes one shard's rows and commits them with one manifest."""

from __future__ import annotations

import io
import time
import uuid
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.run.shards import File, write_table
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import Storage, open_storage
from jobs.chain.ablate.shared_work import Answer, SharedWork
from jobs.chain.ablate.tables import ARM_STORED
from jobs.chain.stages.write import committed_row, costs_columns, files_before, flattened, loss_counts, stored_table
from jobs.tables import COMMITTED
from retrievers.order import order
from retrievers.ranking import offsets_of, ranks

ROW_GROUP = 50_000  # rows: one of an arm's own has a few hundred, and takes longer to begin than to fill


class WriteArms:
    """A worker of the last stage."""

    NEEDS = ("shard", "query_id", "log_count", "rewrites", "selections", "stored", "documents", "fused", "counts", "costs",
             "errors", "overhead")  # fmt: skip
    GIVES = COMMITTED

    def __init__(self, work: SharedWork, full: int, run: str, start: int) -> None:
        """Opens the ablation's folder.

        Args:
            work: of all arms.
            full: index of the answer whose candidates are written.
            run: the ablation's folder.
            start: the number of this start of the ablation, from 1.
        """
        self._work, self._full, self._start = work, full, start
        self._storage = open_storage(run)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Writes and commits the shard; returns one row of COMMITTED."""
        began = time.perf_counter()
        shard = shard_of(table)
        files = files_before(table)
        block = _Block(table, self._work)
        ids = table.column("query_id").combine_chunks()
        columns = {name: flattened(ids, table, name) for name in ("rewrites", "selections", "costs", "errors")}
        columns["costs"] = costs_columns(columns["costs"])
        tables = {name: stored_table(ARM_STORED[name], of) for name, of in columns.items()}
        counts = loss_counts(tables)
        counts["queries"] = table.num_rows
        counts["log_rows"] = pc.sum(table.column("log_count")).as_py()
        counts["rewrites"] = tables["rewrites"].num_rows
        for one in table.column("counts").combine_chunks().flatten().to_pylist():
            counts[one["name"]] += one["count"]
        files |= self._write_results(shard, block, counts)
        tables["candidates"] = block.candidates(self._full, self._work.answers[self._full].candidates)
        if block.scored:
            tables["scores"] = block.scores_table(self._work)
        for name, rows in tables.items():
            if rows.num_rows:
                files.setdefault(name, []).append(write_table(self._storage, name, shard, rows))
        return committed_row(self._storage, table, self._start, files, dict(counts), began)

    def _write_results(self, shard: int, block: _Block, counts: Counter[str]) -> dict[str, list[File]]:
        """Writes the results of all arms, and what stands behind them, an arm after the other; returns table -> file."""
        with _Written(self._storage, "results", shard) as results, _Written(self._storage, "tails", shard) as tails:
            for number, answer in enumerate(self._work.answers):
                found, behind = block.results(number, answer)
                queries = pc.count_distinct(found.column("query_id")).as_py()
                counts[f"arm/{answer.arm}/queries_with_results"] += queries
                counts["arms_with_results"] += queries
                results.add(found)
                tails.add(behind)
        counts["results"] = results.file.rows
        return {table: [one.file] for table, one in (("results", results), ("tails", tails)) if one.file.rows}


class _Written:
    """A file of one table, written one row group after the other: memory holds one group's rows."""

    def __init__(self, storage: Storage, table: str, shard: int) -> None:
        self._storage, self._key = storage, f"{table}/shard-{shard:06d}-{uuid.uuid4().hex[:12]}.parquet"
        self._schema, self._sink, self._group = ARM_STORED[table], io.BytesIO(), list[pa.Table]()
        self.file = File(self._key, 0, 0)

    def __enter__(self) -> _Written:
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        return self

    def add(self, rows: pa.Table) -> None:
        """Adds rows."""
        self._group.append(rows)
        self.file = self.file._replace(rows=self.file.rows + rows.num_rows)
        if sum(one.num_rows for one in self._group) >= ROW_GROUP:
            self._write()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self._group:
            self._write()
        self._writer.close()
        data = self._sink.getvalue()
        self.file = self.file._replace(size=len(data))
        if self.file.rows:
            self._storage.put(self._key, data)

    def _write(self) -> None:
        self._writer.write_table(pa.concat_tables(self._group))
        self._group = []
        heartbeat()


class _Block:
    """The candidates and scores of a block as flat arrays."""

    def __init__(self, table: pa.Table, work: SharedWork) -> None:
        self.query_ids = table.column("query_id").combine_chunks()
        documents = table.column("documents").combine_chunks()
        sizes = pc.list_value_length(documents).to_numpy(zero_copy_only=False).astype(np.int64)
        self._starts = np.cumsum(sizes) - sizes
        self._doc_ids = documents.flatten().field("doc_id")
        self._document_row = np.repeat(np.arange(table.num_rows), sizes)
        lists = table.column("fused").combine_chunks()
        fused = lists.flatten()
        row = np.repeat(np.arange(table.num_rows), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
        arm = fused.field("arm").to_numpy(zero_copy_only=False)
        by_arm = np.argsort(arm, kind="stable")
        self._bounds = np.searchsorted(arm[by_arm], np.arange(len(work.answers) + 1))
        self._row = row[by_arm]
        self._place = self._starts[self._row] + fused.field("document").to_numpy(zero_copy_only=False)[by_arm]
        self._score = fused.field("score").to_numpy(zero_copy_only=False)[by_arm]
        self._sources, self._by_arm = fused.field("sources"), by_arm
        self.rows = table.num_rows
        self.scored = "scores" in table.column_names
        self._reranked = np.full((len(work.rerankers), len(self._doc_ids)), np.nan)
        self._has_scores = np.zeros(self.rows, dtype=bool)
        if self.scored:
            given = table.column("scores").combine_chunks()
            self._has_scores = pc.is_valid(given).to_numpy(zero_copy_only=False)
            flat = given.flatten()
            rows = np.repeat(np.arange(self.rows), pc.fill_null(pc.list_value_length(given), 0).to_numpy(zero_copy_only=False))
            at = self._starts[rows] + flat.field("document").to_numpy(zero_copy_only=False)
            self._reranked[flat.field("reranker").to_numpy(zero_copy_only=False), at] = flat.field("score").to_numpy(
                zero_copy_only=False
            )

    def results(self, number: int, answer: Answer) -> tuple[pa.Table, pa.Table]:
        """Returns the rows of one arm in results/, and those in tails/."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        row, place, fused = self._row[begin:end], self._place[begin:end], self._score[begin:end]
        lengths = np.bincount(row, minlength=self.rows)
        reranked = np.full(len(row), np.nan)
        score = fused.copy()
        chosen = np.arange(len(row))
        if answer.reranker is not None:
            given = (ranks(lengths) <= answer.candidates) & self._has_scores[row]
            of = np.flatnonzero(given)
            reranked[of] = self._reranked[answer.reranker][place[of]]
            sizes = np.where(self._has_scores, np.minimum(lengths, answer.candidates), 0)
            ordered = order(
                offsets_of(sizes), self._doc_ids.take(pa.array(place[of])), reranked[of], answer.combine, answer.candidates
            )
            score[of[ordered.places]] = ordered.scores
            chosen = np.concatenate([of[ordered.places], np.flatnonzero(~given)])
            chosen = chosen[np.argsort(row[chosen], kind="stable")]
        rank = ranks(lengths)
        kept, behind = rank <= answer.keep, (rank > answer.keep) & (rank <= answer.looked)
        tail, chosen = chosen[behind], chosen[kept]
        at = self._by_arm[begin:end][chosen]
        results = [
            self.query_ids.take(pa.array(row[chosen])),
            pa.repeat(pa.scalar(answer.arm), len(chosen)),
            pa.array(rank[kept].astype(np.int32)),
            self._doc_ids.take(pa.array(place[chosen])),
            pa.array(score[chosen]),
            pa.array(fused[chosen]),
            pa.array(reranked[chosen], from_pandas=True),  # NaN: no score
            self._sources.take(pa.array(at)),
        ]
        tails = [
            self.query_ids.take(pa.array(row[tail])),
            pa.repeat(pa.scalar(answer.arm), len(tail)),
            pa.array(rank[behind].astype(np.int32)),
            self._doc_ids.take(pa.array(place[tail])),
        ]
        return pa.table(results, schema=ARM_STORED["results"]), pa.table(tails, schema=ARM_STORED["tails"])

    def candidates(self, number: int, keep: int) -> pa.Table:
        """Returns the rows of candidates/: the first `keep` of one arm before reranking."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        rank = ranks(np.bincount(self._row[begin:end], minlength=self.rows))
        of = begin + np.flatnonzero(rank <= keep)
        columns = [
            self.query_ids.take(pa.array(self._row[of])),
            pa.array(rank[of - begin].astype(np.int32)),
            self._doc_ids.take(pa.array(self._place[of])),
            pa.array(self._score[of]),
        ]
        return pa.table(columns, schema=ARM_STORED["candidates"])

    def scores_table(self, work: SharedWork) -> pa.Table:
        """Returns the rows of scores/: every scored pair."""
        parts = list(_scored(self._reranked))
        columns = [
            pa.concat_arrays([self.query_ids.take(pa.array(self._document_row[at])) for _, at in parts]),
            pa.concat_arrays([self._doc_ids.take(pa.array(at)) for _, at in parts]),
            pa.concat_arrays([pa.repeat(pa.scalar(work.rerankers[number].model), len(at)) for number, at in parts]),
            pa.array(np.concatenate([self._reranked[number][at] for number, at in parts])),
            pa.concat_arrays([pa.repeat(pa.scalar(work.rerankers[number].label), len(at)) for number, at in parts]),
        ]
        return pa.table(columns, schema=ARM_STORED["scores"])


def _scored(reranked: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for number, scores in enumerate(reranked):
        yield number, np.flatnonzero(~np.isnan(scores))
