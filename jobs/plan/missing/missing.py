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


def missing_of(
    job: Job,
    queries: PlannedQueries,
    done: Collection[int],
    *,
    pools: Mapping[str, Pool],
    rewritten: float | None,
    phase: Callable[[str], object] = lambda _: None,
    pay: Callable[[Collection[str]], PaidSample | None] = lambda _: None,
) -> dict[str, Any]:
    """Returns what a job is to pay for, as JSON-able values.

    Args:
        job: It is not finished.
        queries: Of the job.
        done: Numbers of the committed shards.
        pools: Its workers.
        rewritten: The share of queries that its gate lets be rewritten; None: unknown, or there is no gate.
        phase: Is told how far it is.
        pay: Pays for some of the queries of which something is missing, and keeps what it has paid for.

    Raises:
        DmqrError: An index, a recording or the store cannot be read.
    """
    job = replace(job, gold=gold_of_queries(job.prepared, queries))
    look = partial(survey, job, queries, done, pools, phase)
    looked = look()
    paid = pay(looked.ids["answers"] or looked.ids["lists"])
    looked = looked if paid is None else look()
    texts = read_sample(queries, SAMPLE, seed=0).column("query").to_pylist()
    found = expected(job, looked, pools, 1.0 if rewritten is None else rewritten, paid, texts).values()
    return found if paid is None else found | {"sample": paid.values()}
