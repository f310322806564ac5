"""The config that a tuning writes: the run's own, without defaults, with what was chosen, and a header with the figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from cluster.errors import ConfigError
from cluster.storage import remote
from cluster.storage.whole_file import written
from jobs.config.config import Config
from jobs.runs.folder import RunFolder
from jobs.tune.search import TuningStep, fuse_settings
from jobs.tune.tune import ALONE, CONFIGURED, Tuning, choices, conclusion_written, conclusions, tuning_notes
from retrievers.lists import ORIGINAL
from retrievers.web.settings import ADDRESSES

HEADER = "# Written by dmqr tune"
WIDTH = 120  # columns of the files
DATE = "{date}"


def check_out(path: str) -> None:
    """Checks where a config is to be written, before anything is computed.

    Raises:
        ConfigError: It is no local YAML file, its folder is not there, or a file is there: it may have been edited.
    """
    if remote(path) or not path.endswith((".yaml", ".yml")):
        raise ConfigError("argument", f"--out {path}: is no YAML file of this machine; give a name that ends in .yaml")
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError("argument", f"--out {path}: its folder is not there; make it, or give another name")
    if Path(path).exists():
        what = f"--out {path}: {path} is there, and is not overwritten"
        raise ConfigError("argument", f"{what}; give another name or remove it")


def write_tuned(run: RunFolder, tuning: Tuning, judged_by: str, path: str) -> list[str]:
    """Writes the config of the chosen step to a path, with what came out as comments; returns the files.

    `judged_by`: the path of the judgements.
    """
    file = _config_file(run)
    values = tuned_values(run.config, tuning.chosen, tuning.own_weights, file)
    said = [conclusion_written(tuning, path), *conclusions(tuning), *choices(tuning), *tuning_notes(tuning)]
    rows = [f"{step.name:<24} {step.mean:.4f}" for step in tuning.steps]
    idle = [name for name, weight in values.get("fuse", {}).get("weights", {}).items() if not weight and name != ORIGINAL]
    if idle:
        said.append(f"weight 0: {', '.join(idle)}; out of rewrite.strategies they cost nothing, but joint answers may change")
    if file is None and run.config.label is not None:
        said.append(f"label: that of the run, {run.config.label}; take it out if --label gave it")
    if DATE in str(values):
        said.append(f"{DATE}: the day of the log; the run had {run.config.log.date or 'none of its own'}")
    lines = [f"from {run.storage.root}, judged by {judged_by}", f"{tuning.measure} of held-out queries:", *rows, *said]
    header = "\n".join([HEADER, *(f"# {line}" for line in lines)])
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=WIDTH)
    with written(path) as opened:
        opened.write_text(f"{header}\n{text}", encoding="utf-8")
    return [path]


def _config_file(run: RunFolder) -> Mapping[str, Any] | None:
    """Returns what stands in the file of a run's config, as far as it is here; it may have been edited since."""
    try:
        found = yaml.safe_load(Path(run.record["config_file"]).read_text(encoding="utf-8"))
    except (KeyError, OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return found if isinstance(found, dict) else None


def tuned_values(
    config: Config, step: TuningStep, own_weights: Mapping[str, float], file: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the keys of a config that differ from their defaults, with what a step changes.

    Args:
        config: Of the run.
        step: The chosen one.
        own_weights: Strategy -> the weight that its file gives it.
        file: What the file of the run's config holds; None: that is not known.
    """
    values = _for_other_nights(_without_defaults(config), config, file)
    if step.name == CONFIGURED:
        return values
    if step.name == ALONE:
        values["rewrite"]["select"] = {"kind": "never"}
        for key in ("weights", "retriever_weights"):
            values.get("fuse", {}).pop(key, None)
        return values
    fused = fuse_settings(config.fuse, step.final, own_weights)
    if config.fuse.redundancy == "cosine" and step.name != f"redundancy {step.final.redundancy}":
        fused = fused.model_copy(update={"redundancy": config.fuse.redundancy})  # overlap only stood in for it here
    changed = {key: getattr(fused, key) for key in ("weights", "retriever_weights", "redundancy")}
    fuse = values.get("fuse", {}) | {key: value for key, value in changed.items() if value != _default(fused, key)}
    for key, value in changed.items():
        if value == _default(fused, key):
            fuse.pop(key, None)
    values = {key: value for key, value in (values | {"fuse": fuse}).items() if key != "fuse" or fuse}
    return {name: values[name] for name in Config.model_fields if name in values}


def _default(part: BaseModel, key: str) -> Any:
    return type(part).model_fields[key].get_default(call_default_factory=True)


def _without_defaults(config: Config) -> dict[str, Any]:
    values: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    for one in values["retrieve"]["retrievers"].values():
        if one["kind"] == "elastic" and one.get("analyzer") == "english":  # what is filled in where nothing is said
            del one["analyzer"]
        if one["kind"] == "web" and one.get("base_url") == ADDRESSES.get(one["provider"]):
            one.pop("base_url", None)
    return values


def _for_other_nights(values: dict[str, Any], config: Config, file: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a config's values without what is of its night alone: the day of the log, and a label of the command line."""
    known, date = file or {}, config.log.date
    own = known.get("label")
    if file is not None and config.label is not None and config.label != str(own).replace(DATE, str(date)):
        values |= {"label": own}
        if own is None:
            del values["label"]
    nightly = DATE in str(_undated(values["log"], date, known.get("log"), True)["path"])
    found: dict[str, Any] = _undated(values, date, known, nightly)
    if nightly and found["log"].get("date") == DATE:  # as it is where nothing is said
        del found["log"]["date"]
    return found


def _undated(value: Any, date: str | None, file: Any, nightly: bool) -> Any:
    """Returns a value with `{date}` where a day was filled in.

    Args:
        value: of the run's config.
        date: the day of its log; None: it has none.
        file: what the config's file has at that place; None: it has nothing, or is not known.
        nightly: whether the log's day is taken for filled in where the file does not say so.
    """
    if isinstance(value, dict):
        inner = file if isinstance(file, dict) else {}
        return {key: _undated(one, date, inner.get(key), nightly) for key, one in value.items()}
    if isinstance(value, list):
        every = file if isinstance(file, list) and len(file) == len(value) else [None] * len(value)
        return [_undated(one, date, of, nightly) for one, of in zip(value, every, strict=True)]
    if not isinstance(value, str):
        return value
    if isinstance(file, str) and re.fullmatch(re.escape(file).replace(re.escape(DATE), r"\d{4}-\d\d-\d\d"), value):
        return file
    return value.replace(date, DATE) if nightly and date is not None and str(file) != value else value
