"""Configs that are refused, each by one line: `tests/refusals.yaml`.

A case changes the smallest config: `set` (dotted key: value), `unset`, `args` (`--set`), `files` beside it (values are written
as YAML), or `text` in place of it. `says` is a part of the line. Nothing but the config and its files is read.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError, RewriterError
from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config
from jobs.job.measure_checks import check_measures
from jobs.job.pools import requested_pools
from jobs.job.rewrite import read_rewriting
from jobs.job.steps import read_steps

TABLE = yaml.load(Path(__file__).with_name("refusals.yaml").read_bytes(), yaml.CSafeLoader)
CASES: list[Any] = [
    pytest.param(case, id=f"{group}: {case['says'][:60]}") for group, cases in TABLE["cases"].items() for case in cases
]


def check(path: str, *settings: str) -> None:
    """Checks a config as `run` and `ablate` do, up to where a log, an index or an engine would be opened."""
    config = load_config(path, list(settings))
    read_rewriting(config)
    read_steps(config)
    check_measures(config.evaluate.measures)
    requested_pools(config)
    arms_of(config)


def changed(case: dict[str, Any]) -> dict[str, Any]:
    """The smallest config with the changes of a case."""
    values: dict[str, Any] = copy.deepcopy(TABLE["config"])
    for key in [*case.get("set", {}), *case.get("unset", [])]:
        *folders, last = key.split(".")
        holder = values
        for folder in folders:
            holder = holder.setdefault(folder, {})
        if key in case.get("set", {}):
            holder[last] = case["set"][key]
        else:
            del holder[last]
    return values


def test_the_smallest_config_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(TABLE["config"]), encoding="utf-8")
    check(str(tmp_path / "config.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_a_config_is_refused_by_one_line(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in case.get("files", {}).items():
        text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True)
        Path(name).write_text(text, encoding="utf-8")
    Path("config.yaml").write_text(case.get("text") or yaml.safe_dump(changed(case), sort_keys=False), encoding="utf-8")
    with pytest.raises((ConfigError, RewriterError)) as refused:
        check("config.yaml", *case.get("args", []))
    assert case["says"] in str(refused.value)
    assert "\n" not in str(refused.value)
