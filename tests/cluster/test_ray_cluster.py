"""ray-cluster.yaml: by Ray's own schema; its head asks for a token and keeps its dashboard to itself."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.support.cluster.image_build import ROOT, instructions

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "cluster/ray-cluster.yaml").read_text(encoding="utf-8"))
STARTS = [CLUSTER["head_start_ray_commands"][-1], CLUSTER["worker_start_ray_commands"][-1]]
CONTEXT = {path.name for path in ROOT.iterdir()}
TOKEN = "0123456789abcdef" * 4


def test_ray_takes_it() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(CLUSTER)
    validate_config(prepared)
    assert set(CLUSTER) <= set(prepared)
    assert prepared["available_node_types"]["local.cluster.node"]["min_workers"] == len(CLUSTER["provider"]["worker_ips"])


def test_what_is_copied_is_there_and_enough_to_install() -> None:
    copied = {source for source in CLUSTER["file_mounts"].values() if not source.startswith("~")}
    assert all((ROOT / source).exists() for source in copied)
    steps = [one.text.split() for one in instructions(ROOT / "cluster/Dockerfile") if one.name == "COPY"]
    assert copied == {source for *sources, _ in steps for source in sources if source in CONTEXT}
    assert all("PIP_CONSTRAINT=~/dmqr/cluster/constraints.txt" in one for one in CLUSTER["setup_commands"] if "pip " in one)


def test_every_node_asks_for_a_token() -> None:
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in STARTS)
    assert CLUSTER["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert TOKEN not in json.dumps(CLUSTER)
    assert "--dashboard-host=127.0.0.1 " in STARTS[0]
