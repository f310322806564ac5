"""The Grafana dashboard and the alert rules: metrics, labels and links that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from cluster.metrics.table import METRICS, RUN_LABELS
from tests.support.cluster.metric_names import exposed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster" / "dashboards"
DASHBOARD = json.loads((FOLDER / "dmqr.json").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for _, target in TARGETS] + [rule["expr"] for rule in RULES]


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bray_\w+", expression))


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


def test_every_rule_says_how_bad_it_is_and_where_help_is() -> None:
    for rule in RULES:
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
