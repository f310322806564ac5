"""The config that a tuning writes: the run's own, without defaults, with what was chosen, and a header with the figures."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ConfigError
from cluster.storage import remote, written
from jobs.config.config import Config
from jobs.config.load import config_of
from jobs.runs.folder import RunFolder
from jobs.tune.search import TuningStep
from jobs.tune.tune import ALONE, CONFIGURED, Tuning, choices, conclusion_written, conclusions
from retrievers.settings import FuseSettings

HEADER = "# Written by dmqr tune"
WIDTH = 120  # columns of the files
DATE = "{date}"


def check_out(path: str) -> None:
    """Checks the path of a config that is to be written, before anything is computed.

    Raises:
        ConfigError: It is no local YAML file, its folder does not exist, or a file is there: it may have been edited.
    """
    if remote(path) or not path.endswith((".yaml", ".yml")):
        raise ConfigError("argument", f"--out {path}: is not a YAML file on this machine; give a name that ends in .yaml")
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError("argument", f"--out {path}: its folder does not exist; create it, or give another name")
    if Path(path).exists():
        what = f"--out {path}: {path} exists, and is not overwritten"
        raise ConfigError("argument", f"{what}; give another name or remove it")


def write_tuned(run: RunFolder, tuning: Tuning, judged_by: str, path: str) -> None:
    """Writes the config of the chosen step to a path, with what came out as comments.

    `judged_by`: the path of the judgements.
    """
    file = _config_file(run)
    values = tuned_values(run.config, tuning.chosen, file)
    notes = [conclusion_written(tuning, path), *conclusions(tuning), *choices(tuning), *tuning.notes]
    rows = [f"{step.name:<24} {step.mean:.4f}" for step in tuning.steps.values()]
    if file is None and run.config.label is not None:
        notes.append(f"label: that of the run, {run.config.label}; take it out if --label gave it")
    if DATE in str(values):
        notes.append(f"{DATE}: the day of the log; the run had {run.config.log.date or 'none of its own'}")
    lines = [f"from {run.storage.root}, judged by {judged_by}", f"{tuning.measure} of held-out queries:", *rows, *notes]
    header = "\n".join([HEADER, *(f"# {line}" for line in lines)])
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=WIDTH)
    with written(path) as opened:
        opened.write_text(f"{header}\n{text}", encoding="utf-8")


def _config_file(run: RunFolder) -> dict[str, Any] | None:
    """Returns the content of a run's config file; None: it is missing, or differs from the run (`--set`, edited since)."""
    try:
        file = yaml.safe_load(Path(run.record["config_file"]).read_text(encoding="utf-8"))
        config = config_of(deepcopy(dict(file)), "", date=run.config.log.date)
    except (KeyError, OSError, TypeError, ValueError, yaml.YAMLError, ConfigError):
        return None
    return dict(file) if config.model_copy(update={"label": run.config.label}) == run.config else None


def tuned_values(config: Config, step: TuningStep, file: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the values of a run's config `file`, without one the run's own, with what a step changes."""
    values: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True) if file is None else deepcopy(file)
    if file is None and config.log.date is not None and config.log.date in str(config.log.path):  # the day of its log
        values = json.loads(json.dumps(values).replace(config.log.date, DATE))
        del values["log"]["date"]  # null is the default
    if step.name == CONFIGURED:
        return values
    if step.name == ALONE:
        values.setdefault("rewrite", {})["select"] = {"kind": "never"}
        changed: dict[str, Any] = {"weights": {}, "retriever_weights": {}}
    else:
        changed = step.final.model_dump(include={"weights", "retriever_weights", "redundancy"})
        if config.fuse.redundancy == "cosine" and step.name != f"redundancy {step.final.redundancy}":
            changed["redundancy"] = "cosine"  # overlap only stood in for it here
    fields = FuseSettings.model_fields
    fuse = values.pop("fuse", {}) | changed
    fuse = {key: value for key, value in fuse.items() if value != fields[key].get_default(call_default_factory=True)}
    return values | ({"fuse": fuse} if fuse else {})
