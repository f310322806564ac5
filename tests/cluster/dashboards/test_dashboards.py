"""The Grafana dashboard and the alert rules: names, links, and what a real Prometheus makes of every expression."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.metrics.table import METRICS, RUN_LABELS, exposed

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "cluster" / "dashboards"
DASHBOARD = json.loads((FOLDER / "dmqr.json").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
TESTS = [Path(__file__).with_name(name) for name in ("alerts_test.yaml", "alerts_night_test.yaml")]
SCRAPE = ROOT / "tests" / "cluster" / "metrics_scrape.txt"
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for _, target in TARGETS] + [rule["expr"] for rule in RULES]
STEP, STEPS = 15, 40  # s between two scrapes, of ten minutes

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="no promtool and prometheus on PATH (Debian's package prometheus)",
)


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bray_\w+", expression))


# ---------------------------------------------------------------- names and links


def test_only_metrics_that_exist() -> None:
    names = {name for metric in METRICS for name in exposed(metric)}
    queries = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    used = set().union(*map(metrics_in, [*EXPRESSIONS, *map(str, queries)]))
    assert used <= names
    assert len(used) > 20


def test_what_matters_is_shown() -> None:
    assert METRICS.keys() == {base(name) for expression in EXPRESSIONS for name in metrics_in(expression)}


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


def test_panels_do_not_overlap() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}

    for one, two in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(two), (one["title"], two["title"])


def test_every_rule_says_how_bad_it_is_and_where_help_is() -> None:
    for rule in RULES:
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_rule_is_tested_both_ways() -> None:
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for rule in RULES:
        found = [bool(case["exp_alerts"]) for case in cases if case["alertname"] == rule["alert"]]
        assert {True, False} == set(found), rule["alert"]


# ---------------------------------------------------------------- a real Prometheus


@needs_prometheus
@pytest.mark.parametrize("arguments", [["check", "rules", FOLDER / "alerts.yaml"], ["test", "rules", *TESTS]])
def test_promtool_agrees(arguments: list[str | Path]) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def recorded(now: int) -> str:
    """The recorded scrape as OpenMetrics: ten minutes in which counters grow evenly to what they were, before `now`.

    The run that was recorded ends at `now`.
    """
    lines = []
    (ended,) = re.findall(r"^ray_dmqr_finished_timestamp_seconds{.*} (\S+)$", SCRAPE.read_text(), flags=re.MULTILINE)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", SCRAPE.read_text(), flags=re.MULTILINE))
    for line in SCRAPE.read_text().splitlines():
        if line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        grows = kinds.get(name) == "counter" or kinds.get(re.sub(r"_(bucket|count|sum)$", "", name)) == "histogram"
        for step in range(STEPS + 1):
            now_value = float(value) * (step / STEPS if grows else 1)
            now_value += now - float(ended) if name.endswith("_timestamp_seconds") else 0
            lines.append(f"{series} {now_value} {now - (STEPS - step) * STEP}")
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Evaluates an expression at the end of the recorded ten minutes."""
    place, now = tmp_path_factory.mktemp("prometheus"), int(time.time()) - 3600
    (place / "scrape.om").write_text(recorded(now))
    (place / "none.yaml").write_text("{}\n")
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(place / "scrape.om"), str(place / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={place}/none.yaml", f"--storage.tsdb.path={place}/data", f"--web.listen-address={address}"]
    with (place / "log").open("w") as log, subprocess.Popen(["prometheus", *options], stdout=log, stderr=log) as server:
        try:
            end = time.monotonic() + 300
            while not answers(f"http://{address}/-/ready"):
                assert server.poll() is None, (place / "log").read_text()
                assert time.monotonic() < end, (place / "log").read_text()
                time.sleep(0.05)

            def evaluate(expression: str) -> list[dict[str, Any]]:
                query = urllib.parse.urlencode({"query": expression, "time": now})
                with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=300) as reply:
                    found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
                return found

            yield evaluate
        finally:
            server.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@needs_prometheus
@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_every_expression_of_the_dashboard(
    ask: Callable[[str], list[dict[str, Any]]], title: str, target: dict[str, Any]
) -> None:
    expression = target["expr"]
    for name, value in {"$run_id": ".*", "$run": ".*", "$__rate_interval": "1m", "$__range": "10m"}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    found = ask(expression)
    scraped = {line.partition("{")[0] for line in SCRAPE.read_text().splitlines()}
    missing = metrics_in(expression) - scraped
    assert bool(found) == (not missing), missing
    for series in found:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= series["metric"].keys() | {"query_type", "model"}
        assert float(series["value"][1]) == float(series["value"][1]) >= 0, "no number"


@needs_prometheus
def test_figures_of_the_recorded_run(ask: Callable[[str], list[dict[str, Any]]]) -> None:
    def shown(title: str) -> dict[str, float]:
        ((_, target),) = [one for one in TARGETS if one[0] == title]
        expression = re.sub(r"\{[^}]*\}", "", target["expr"]).replace("$__rate_interval", "1m")
        return {series["metric"].get("stage", ""): float(series["value"][1]) for series in ask(expression)}

    assert shown("Shards committed") == {"": 1.0}
    rates = shown("Queries per second by stage")
    assert rates["rewrite"] == rates["write"] == pytest.approx(176 / (STEP * STEPS))


@needs_prometheus
def test_rules_on_the_recorded_run(ask: Callable[[str], list[dict[str, Any]]]) -> None:
    fired = {rule["alert"] for rule in RULES if rule["alert"] != "DmqrNoSuccessBySix" and ask(rule["expr"])}
    assert fired <= {"DmqrErrorRate"}
