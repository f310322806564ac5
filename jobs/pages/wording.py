"""Facts that the pages of runs and ablations share: their heads, and their configuration."""

from __future__ import annotations

from typing import Any

import yaml

from jobs.pages.render import Code, Head, Section, Table
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked, size


def head_facts(run: RunFolder) -> list[str]:
    """Returns what stands below the title of a run's page."""
    label, inputs = run.config.shown_label, masked(run.plan.inputs)
    log = f"log {inputs[0]['path']}" + (f" and {len(inputs) - 1:,} more" if len(inputs) > 1 else "") if inputs else ""
    return [one for one in (run.record["run_id"], label, f"started {moment(run.starts[0]['began'])}", log) if one]


def state_words(run: RunFolder) -> str:
    """Returns how far a run is."""
    return "✓ finished" if run.finished else f"not finished: {run.state}"


def moment(began: str) -> str:
    """Returns a time of `run.json` as people read it."""
    return began[:16].replace("T", " ") + " UTC"


def configuration(run: RunFolder) -> Section:
    """Returns the folded section on what a run was given."""
    record, plan = run.record, run.plan
    inputs = [f"{file['path']} ({size(file['size'])})" for file in masked(plan.inputs)[:5]]
    rows = [
        ("folder", masked(run.storage.root)),
        ("config file", record.get("config_file") or "-"),
        ("fingerprint", record["run_id"].rpartition("-")[2]),
        ("shards", f"{len(run.manifests):,} of {len(plan.shards):,} committed, of {plan.shard_size:,} queries"),
        ("log files", f"{len(plan.inputs):,}: {', '.join(inputs)}{', …' * (len(plan.inputs) > 5)}"),
    ]
    versions = {name: version or "not installed" for name, version in record["versions"].items()}
    texts = {"Config": record["config"], "Indexes": record["indexes"], "Versions": versions}
    parts = [Code(name, as_yaml(values)) for name, values in texts.items()]
    return Section("config", "Configuration", parts=[Table([Head(""), Head("")], rows), *parts], folded=True)


def as_yaml(values: Any) -> str:
    """Returns values as YAML, without the passwords of URLs."""
    return yaml.safe_dump(masked(values), sort_keys=False, allow_unicode=True, width=100)
