"""A night of dmqr as an asset of Dagster, partitioned by the day of the log."""

import json
import os
import subprocess

import dagster as dg

CONFIG = os.environ.get("DMQR_CONFIG", "/srv/dmqr/configs/nightly.yaml")
REFUSED = 2  # config, input or cluster: another try would be refused, too


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="UTC"),
    retry_policy=dg.RetryPolicy(max_retries=3, delay=600, backoff=dg.Backoff.EXPONENTIAL),
    pool="dmqr",  # with a limit of 1: `dagster instance concurrency set dmqr 1`
)
def rewritten_queries(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Rewrites the queries of a day."""
    command = ["dmqr", "run", CONFIG, "--date", context.partition_key, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate()
    except BaseException:  # the run is ended: what is under way is committed, the next try goes on
        process.terminate()
        process.wait()
        raise
    if process.returncode == REFUSED:
        raise dg.Failure("dmqr run was refused: the last line of its standard error says why", allow_retries=False)
    if process.returncode:
        raise dg.Failure(f"dmqr run ended with exit code {process.returncode}; the same command goes on")
    values = json.loads(out)
    queries = values["counts"]["queries"]
    return dg.MaterializeResult(metadata={"folder": values["folder"], "queries": queries, "usd": values["usd"] or 0.0})


night = dg.define_asset_job("dmqr_night", [rewritten_queries])
defs = dg.Definitions(
    assets=[rewritten_queries],
    schedules=[dg.build_schedule_from_partitioned_job(night, hour_of_day=2, minute_of_hour=15)],
)
