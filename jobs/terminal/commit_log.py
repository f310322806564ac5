"""Tells of a committed shard in the log, and which of its queries failed."""

from __future__ import annotations

from cluster.run.shards import Manifest
from jobs.counts import ErrorQueries
from jobs.terminal.formats import queries
from jobs.terminal.logs import event


def log_commit(manifest: Manifest, committed: int, planned: int) -> None:
    """Logs a commit, and a line for each stage and reason for which queries of the shard failed; never their texts."""
    words = f"shard {manifest.shard} is committed, {committed} of {planned}"
    rows = manifest.counts.get("queries", 0)
    event("commit", words, shard=manifest.shard, start=manifest.start, queries=rows, committed=committed)
    for key, ids in manifest.failed.items():
        stage, _, reason = key.partition("/")
        failed = manifest.counts.get(ErrorQueries(stage, reason).key, len(ids))
        event(
            "failures", f"shard {manifest.shard}: {queries(failed)} failed in {stage}: {reason}",
            shard=manifest.shard, start=manifest.start, stage=stage, reason=reason, queries=failed, query_ids=ids,
        )  # fmt: skip
