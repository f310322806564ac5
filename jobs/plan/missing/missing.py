"""What is missing for a job, as `plan` says it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from cluster.run.pool_sizes import Pool
from jobs.plan.estimate import SAMPLE
from jobs.plan.missing.expected import expected
from jobs.plan.missing.survey import survey
from jobs.plan.sample import PaidSample
from jobs.run.gold_answers import gold_of_queries
from jobs.run.job import Job
from jobs.run.planning.sample import PlannedQueries, read_sample
from jobs.run.planning.thresholds import SampledGate, numbers


def missing_of(
    job: Job,
    queries: PlannedQueries,
    done: Collection[int],
    *,
    pools: Mapping[str, Pool],
    gated: SampledGate,
    phase: Callable[[str], object] = lambda _: None,
    pay: Callable[[Collection[str]], PaidSample | None] = lambda _: None,
) -> dict[str, Any]:
    """Returns what a job is to pay for, as JSON-able values.

    Args:
        job: It is not finished.
        queries: Of the job.
        done: Numbers of the committed shards.
        pools: Its workers.
        gated: Its thresholds, and how many queries its gate lets be rewritten.
        phase: Is told how far it is.
        pay: Pays for some of the queries of which something is missing, and keeps what it has paid for.

    Raises:
        DmqrError: An index, a recording or the store cannot be read.
    """
    job = replace(job, gold=gold_of_queries(job.prepared, queries))
    look = partial(survey, job, queries, done, pools, numbers(gated.thresholds), phase)
    looked = look()
    paid = pay(looked.ids["answers"] or looked.ids["lists"])
    looked = looked if paid is None else look()
    texts = read_sample(queries, SAMPLE, seed=0).column("query").to_pylist()
    found = expected(job, looked, pools, 1.0 if gated.rewritten is None else gated.rewritten, paid, texts).values()
    return found if paid is None else found | {"sample": paid.values()}
