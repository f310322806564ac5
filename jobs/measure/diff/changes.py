"""What two runs were given: config, prompts, models, indexes, versions and log, by `run.json` and the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.job.steps import WEB_SEARCH
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked
from rewriters.adaptive import REQUEST_NAME as ADAPTIVE
from rewriters.calls import REQUEST_NAME as JOINT
from rewriters.pool import named
from rewriters.strategy import template_hash

TEXTS = ("system", "prompt", "document")
"""Of what a step after retrieval asks: the fields with what an LLM reads (`rewriters.steps.step.LlmStep`)."""


class Change(NamedTuple):
    """A value that differs, by its dotted path; None: there is none."""

    path: str
    a: Any
    b: Any


def changes(a: RunFolder, b: RunFolder) -> dict[str, list[Change]]:
    """Returns the values that differ, by section, in the order of the sections; a section may be empty."""
    of_a, of_b = masked(_given(a)), masked(_given(b))
    found = {section: _differing(of_a[section], of_b[section]) for section in of_a}
    found["prompts"] = _by_strategy(of_a["prompts"], of_b["prompts"]) + _differing(_rules(a), _rules(b), "rules.")
    found["prompts"] += _by_strategy(*({key: _asked(one) for key, one in later_steps(run).items()} for run in (a, b)))
    return found


def _given(run: RunFolder) -> dict[str, dict[str, Any]]:
    identity = run.record.get("identity", {})
    rewriting = identity.get("rewrite", {})
    return {
        # not as run.json has it: a key that is newer than the run is at its default there
        "config": _config(run),
        "prompts": _strategies(run, rewriting.get("rewriter", {})),
        "models": {
            "rewrite": rewriting.get("engine", {}),
            "rewrite.engines": rewriting.get("engines", {}),  # of strategies with their own
            "rerank": identity.get("rerank", {}),
            **{key: one["engine"] for key, one in later_steps(run).items() if "engine" in one},
        },
        "indexes": run.record.get("indexes", {}) | {"order": identity.get("order"), WEB_SEARCH: identity.get("web_search", {})},
        "versions": {
            "tables": identity.get("schema_version"),
            **identity.get("versions", {}),
            **run.record.get("versions", {}),
        },
        "log": {"rows": run.plan.counts, "files": {str(file.get("path")): file for file in run.plan.inputs}},
    }


def _config(run: RunFolder) -> dict[str, Any]:
    """Returns the config, with strategies by their names."""
    values = run.config.model_dump()
    values["rewrite"]["strategies"] = [named(entry).name for entry in run.config.rewrite.strategies]
    return values


def _strategies(run: RunFolder, rewriter: Mapping[str, Any]) -> dict[str, Any]:
    """Returns strategy -> its settings and the hashes of the request that asks for it, alone or among others."""
    sent = run.requests
    common = sent.get(JOINT, sent.get(ADAPTIVE, {}))
    found = {}
    for one in rewriter.get("strategies", ()):
        request = sent.get(one["name"], common)
        hashes = {"prompt": request.get("prompt_hash"), "schema": request.get("schema_hash")}
        found[one["name"]] = {name: value for name, value in one.items() if name != "name"} | hashes
    return found


def later_steps(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Returns what LLMs were asked after retrieval as `run.json` has it: key of the config -> its step, engine and decoding.

    With `judge.accuracy` stands what tells the gold answers that it shows, `gold_answers`.
    """
    identity = run.record.get("identity", {})
    found = {key: dict(one) for key, one in identity.items() if isinstance(one, Mapping) and "step" in one}
    found |= {f"judge.{kind}": dict(one) for kind, one in identity.get("judge", {}).items()}
    if (gold := identity.get("gold_answers")) is not None:
        found.setdefault("judge.accuracy", {})["gold_answers"] = gold
    return found


def _asked(one: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a step asks apart from its engine, with a hash in place of its texts."""
    step = one.get("step", {})
    texts = {name: step[name] for name in TEXTS if name in step}
    prompt = {"prompt": template_hash(json.dumps(texts, sort_keys=True, ensure_ascii=False))} if texts else {}
    settings = {name: value for name, value in step.items() if name not in TEXTS}
    return settings | prompt | {name: value for name, value in one.items() if name not in ("step", "engine")}


def _rules(run: RunFolder) -> Mapping[str, Any]:
    """Returns the rules of a selection by type, as `run.json` has them."""
    rewriter = run.rewriter
    rules: Mapping[str, Any] = rewriter.get("select", {}).get("rules") or {}
    return rules


def _by_strategy(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Returns what differs of each strategy; one line for a strategy of one run, and none for a schema beside its prompt."""
    found = [Change(name, "asked for", None) for name in a if name not in b]
    found += [Change(name, None, "asked for") for name in b if name not in a]
    settings = _differing({name: a[name] for name in a if name in b}, {name: b[name] for name in a if name in b})
    paths = {one.path for one in settings}
    return found + [one for one in settings if f"{one.path.removesuffix('.schema')}.prompt" not in paths]


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], path: str = "") -> list[Change]:
    """Returns the paths whose values differ; where only one side has a mapping, each of its values is one."""
    found = []
    for name in dict.fromkeys([*a, *b]):
        left, right = a.get(name), b.get(name)
        if isinstance(left, Mapping) or isinstance(right, Mapping):
            (maps_a, rest_a), (maps_b, rest_b) = _parts(left), _parts(right)
            if rest_a != rest_b:
                found.append(Change(f"{path}{name}", rest_a, rest_b))
            found += _differing(maps_a, maps_b, f"{path}{name}.")
        elif left != right:
            found.append(Change(f"{path}{name}", left, right))
    return found


def _parts(value: Any) -> tuple[Mapping[str, Any], Any]:
    """Returns a value as a mapping and the rest: one of the two is empty."""
    return (value, None) if isinstance(value, Mapping) else ({}, value)
