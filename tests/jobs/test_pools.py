"""On what the models of a job compute."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.run.session import InProcessSession
from jobs.config.config import Config
from jobs.pools.requested import device, requested_pools, with_precisions

DENSE = {"kind": "local", "index": "i", "encoder": {"model": "m"}}


@pytest.mark.parametrize(("address", "precisions"), [("none", ("float16", "float16")), ("local", ("float32", "float16"))])
def test_precisions_are_those_of_the_pools_that_the_session_makes(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, address: str, precisions: tuple[str, str]
) -> None:
    """One GPU: in one process each stage has it in turn; of workers side by side only the last stage's has it."""
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 1.0)
    changed = {"retrieve": {"retrievers": {"dense": DENSE}}, "cluster": {"address": address}, "rerank": {"model": "r"}}
    config = with_precisions(Config.model_validate(values | changed))
    encoder = config.retrieve.retrievers["dense"].encoder
    assert encoder is not None
    assert (encoder.dtype, config.rerank.dtype) == precisions
    if address == "none":
        assert {name: device(pool) for name, pool in InProcessSession(requested_pools(config)).pools.items()}[
            "retrieve"
        ] == "cuda:0"
