"""The schemas in flight, each stage's from its class, as the chain makes them."""

import pyarrow as pa

from cluster.run.stage import Stage, link
from jobs.chain.pipeline import CHAIN
from jobs.tables import SHARD


def chain(*left_out: str) -> dict[str, pa.Schema]:
    """Stage -> the schema that it returns, in a chain without a gate and the stages that are left out."""
    stages = [Stage(step.name, step.worker, {}) for step in CHAIN if step.name not in ("gate", *left_out)]
    return {stage.name: stage.produces for stage in link(stages, SHARD)}


REWRITTEN, RETRIEVED, SCORED = (chain()[name] for name in ("rewrite", "retrieve", "score"))
