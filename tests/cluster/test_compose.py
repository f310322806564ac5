"""compose.yaml: valid, pinned, for this machine alone, without secrets; Prometheus and Grafana find what is mounted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "cluster/compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]


def test_it_is_valid() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_checked_local_and_without_secrets(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?$", service["image"])
    check = service["healthcheck"]
    assert (check["test"][0], check["retries"] > 1) == ("CMD", True)
    assert check["test"][-1].startswith("http://127.0.0.1:")
    assert service["security_opt"] == ["no-new-privileges:true"]
    environment = service.get("environment", {})
    if service.get("network_mode") == "host":
        said = [*service.get("command", []), *(f"{key}={value}" for key, value in environment.items())]
        assert any(re.fullmatch(r"--web.listen-address=127\.0\.0\.1:\d+|GF_SERVER_HTTP_ADDR=127\.0\.0\.1", one) for one in said)
    else:
        assert service["ports"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for variable, value in environment.items():
        if re.search(r"(KEY|SECRET|TOKEN|PASSWORD)(_ID)?$", variable):
            assert value is None or re.fullmatch(r"\$\{\w+:\?.+\}", value), variable


def mounts() -> list[tuple[str, str]]:
    """Source and target of everything that is mounted."""
    found = []
    for service in SERVICES.values():
        for one in service["volumes"]:
            source, target = (one["source"], one["target"]) if isinstance(one, dict) else one.split(":")[:2]
            found.append((source, target))
    return found


def test_what_is_mounted_is_there() -> None:
    volumes = yaml.safe_load(FILE.read_text(encoding="utf-8"))["volumes"]
    for source, _ in mounts():
        if source.startswith("./"):
            assert (FILE.parent / source).exists(), source
        elif not source.startswith(("/", "./")):
            assert source in volumes
    assert {source for source, _ in mounts()} >= set(volumes), "a volume that nobody uses"
