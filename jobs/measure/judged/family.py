"""Families of models: a judge of the family of what it judges favours it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder

_ASKED = {"rewrite": "rewrites", "iterate": "refined queries", "answer": "answers"}  # `costs.stage` -> what its LLMs write
_CACHED = re.compile(r"models--(?:[^/]*--)?(?P<name>[^/]+)/snapshots/[^/]+$")  # in a hub's cache a model's folder is a commit

_COMMON = {  # words in names of models that tell a size, a use or a place
    "base", "chat", "coder", "distill", "eu", "fast", "flash", "ft", "hf", "instruct", "it", "large", "latest", "lite", "max",
    "medium", "mini", "models", "nano", "plus", "preview", "pro", "small", "think", "thinking", "tiny", "turbo", "us",
}  # fmt: skip


def family(model: str) -> str:
    """Returns the family of a model: its name up to the first digit, in lower case, without folders before it."""
    path = model.rstrip("/")
    cached = _CACHED.search(path)
    name = cached["name"] if cached else path.rpartition("/")[2]
    name = name.partition("@")[0].casefold()  # a version may stand behind it
    up_to_digit = re.sub(r"[\s_.:-]+v?$", "", (re.match(r"\D*", name) or [""])[0])  # deepseek-v3
    return up_to_digit.lstrip(" _.:-") or name


def alike(one: str, other: str) -> bool:
    """Returns whether two families are one: they are the same, or share a word, as llama and meta-llama do.

    Letters alone, and words that many names have, such as large, do not count.
    """
    shared = {*re.findall(r"[^\W\d_]{2,}", one)} & {*re.findall(r"[^\W\d_]{2,}", other)}
    return one == other or bool(shared - _COMMON)


def models_of(run: RunFolder, stage: str) -> list[str]:
    """Returns the models that have judged, or written what a stage is for, sorted.

    By the costs of the stage; but of refined queries, whose stage may ask another LLM for grades, and of judgements that an
    earlier stage has paid for, by their tables.
    """
    found = {component.partition("@")[2] for component in run.spent.get(stage, {})} - {""}
    if stage == "iterate" or (stage == "judge" and not found):
        files = run.tables.get("rounds" if stage == "iterate" else "judgements")
        found = _models_in(run, files) if files else set()
    return sorted(found)


def _models_in(run: RunFolder, files: Sequence[str]) -> set[str]:
    with database(run) as connection:
        rows = connection.execute("SELECT DISTINCT model FROM rows_of(?)", [list(files)]).fetchall()
    return {model for (model,) in rows if model}


def family_notes(judges: list[str], named: str | None, others: Mapping[str, list[str]]) -> list[str]:
    """Returns a warning if a judge is of the family of a model whose work it judges; else nothing.

    Args:
        judges: Models that judged.
        named: The family of the judge as the config has it; None: by its name.
        others: What models write -> the models.
    """
    families = {family(one) for one in ([named] if named is not None else judges)}
    found = {what: [one for one in models if any(alike(family(one), of) for of in families)] for what, models in others.items()}
    said = " and ".join(f"of {', '.join(models)}, which wrote the {what}" for what, models in found.items() if models)
    if not said:
        return []
    remedy = "name another judge.engine, or judge.family if it is none"
    return [f"warning: the judge {', '.join(judges)} is of the family {said}; models favour their own; {remedy}"]


def judged_families(run: RunFolder, judges: list[str]) -> list[str]:
    """Returns `family_notes` of the judge of a run."""
    named = None if run.config.judge is None else run.config.judge.family
    return family_notes(judges, named, {what: models_of(run, stage) for stage, what in _ASKED.items()})
