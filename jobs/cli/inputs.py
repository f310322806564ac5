"""What a verb reads beside a run: prices and judgements, by its arguments or by the run's config."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.runs.folder import RunFolder
    from jobs.verbs.inputs import GroundTruth


def named_config(word: str) -> bool:
    """Returns whether an argument is named as a config is."""
    return word.endswith((".yaml", ".yml"))


def check_nothing_set(options: argparse.Namespace, given: str) -> None:
    """Refuses what would change a config, where none was given.

    Raises:
        ConfigError: `--set` or `--date` is there.
    """
    for flag in ("set", "date"):
        if getattr(options, flag):
            raise ConfigError("argument", f"--{flag}: {given} is no config, which it would change; leave it out")


def seconds_of(flag: str, words: str) -> float:
    """Returns the seconds of the duration that an option has.

    Raises:
        ConfigError: It is none.
    """
    from cluster.settings import DURATION, duration_seconds

    if not re.fullmatch(DURATION, words):
        raise ConfigError("argument", f"{flag} {words}: is no duration; give one like 12h, 30d or 8w")
    return duration_seconds(words)


def prices_of(options: argparse.Namespace, folder: RunFolder) -> Prices | None:
    """Returns the prices of `--prices`, else those beside the config of the run; None if there are none.

    Raises:
        ConfigError, ClusterError: `--prices` names no file, or the prices are invalid.
    """
    from jobs.verbs.inputs import prices_of_run

    if options.prices and not Path(options.prices).exists():
        raise ConfigError("argument", f"--prices {options.prices}: no such file; give one like configs/prices.yaml")
    return prices_of_run(folder, options.prices)


def ground_truth(options: argparse.Namespace, where: str) -> GroundTruth:
    """Returns what a verb measures a run against; the argument `where` names judgements."""
    from jobs.verbs.inputs import GroundTruth

    given: dict[str, Any] = {name: getattr(options, name, None) for name in ("qrels", "key", "answers")}
    return GroundTruth(note_of(options), where, judged=getattr(options, "judged", False), **given)


def note_of(options: argparse.Namespace) -> Callable[[str], object]:
    """Returns what prints a note of a verb to standard error."""
    return lambda words: print(f"dmqr {options.verb}: {words}", file=sys.stderr)


def shown_by(options: argparse.Namespace) -> list[str] | None:
    """Returns the measures of `--measures`, checked before a job begins; None: there are none.

    Raises:
        ConfigError: one cannot be computed.
    """
    from jobs.job.measure_checks import check_measures

    given: list[str] | None = options.measures
    if given is not None:
        check_measures(given)
    return given


def how_compared(options: argparse.Namespace, folder: RunFolder) -> dict[str, Any]:
    """Returns what `--baseline` and `--pairs` say of the comparison of arms.

    Raises:
        ConfigError: the folder is that of a run, or no arm is called so.
    """
    from jobs.verbs.inputs import named_baselines

    if options.pairs and not folder.is_ablation:
        raise ConfigError("argument", f"--pairs: {folder.storage.root} is a run, which has no arms; leave it out")
    return named_baselines(options.baseline, folder, "--baseline") | {"pairs": options.pairs or None}


def check_samples(options: argparse.Namespace) -> None:
    """Checks `--samples`.

    Raises:
        ConfigError: it is less than 0.
    """
    if options.samples is not None and options.samples < 0:
        raise ConfigError("argument", f"--samples {options.samples}: is less than 0; give 0 or more")
