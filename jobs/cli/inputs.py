"""What a verb reads beside a run: prices and judgements, by its arguments or by the run's config."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.config.settings import EvaluateSettings
    from jobs.log.judgements import Judgements
    from jobs.measure.answers.frame import GoldAnswers
    from jobs.runs.folder import RunFolder


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
    from cluster.costs import load_prices

    path = Path(options.prices) if options.prices else Path(folder.record.get("config_file", "")).with_name("prices.yaml")
    if options.prices and not path.exists():
        raise ConfigError("argument", f"--prices {path}: no such file; give one like configs/prices.yaml")
    return load_prices(path)


def judgements_of(options: argparse.Namespace, folder: RunFolder, where: str) -> Judgements | None:
    """Returns the judgements that the argument `where` names, else those of the run's config if they are here.

    Raises:
        ConfigError: they cannot be read.
    """
    from cluster.storage import remote
    from jobs.log.judgements import read_qrels

    settings = folder.config.evaluate
    if options.qrels is None and settings.qrels is not None and not (remote(settings.qrels) or Path(settings.qrels).exists()):
        words = f"judgements {settings.qrels} are not here; nothing is measured ({where} names others)"
        print(f"dmqr {options.verb}: {words}", file=sys.stderr)
        return None
    qrels = options.qrels or settings.qrels
    return read_qrels(qrels, where if options.qrels else "evaluate.qrels", options.key or settings.key) if qrels else None


def judged_or_named(options: argparse.Namespace, folder: RunFolder, where: str) -> Judgements | None:
    """Returns the judgements that the argument `where` names, else those of the run's config, else those of its judge.

    Raises:
        ConfigError: they cannot be read.
    """
    from jobs.measure.judged.relevance import judged_relevance

    if getattr(options, "judged", False):
        if options.qrels is not None:
            raise ConfigError("argument", f"--judged: measures by the run's judge, and {where} names a file; leave one out")
        return judged_relevance(folder, calibration=getattr(options, "calibration", None))
    named = judgements_of(options, folder, where)
    if named is None:
        return judged_relevance(folder, calibration=getattr(options, "calibration", None))
    return of_run(named, folder)


def measured_by(
    settings: EvaluateSettings, judgements: Judgements | None, measures: Sequence[str] | None = None
) -> EvaluateSettings:
    """Returns the settings with the measures of `--measures`, if it is given, else those that the judgements are for."""
    if measures is None:
        measures = settings.measures if judgements is None else judgements.measures(settings.measures)
    return settings.model_copy(update={"measures": list(measures)})


def of_run(judgements: Judgements, folder: RunFolder) -> Judgements:
    """Returns judgements with the ids that the tables of a run have.

    Raises:
        ConfigError: its collections leave open which documents are meant.
    """
    from jobs.job.judged_ids import qualified_judgements

    return qualified_judgements(judgements, folder.config, folder.record.get("indexes") or {})


def gold_of(options: argparse.Namespace, folder: RunFolder) -> GoldAnswers | None:
    """Returns the gold answers of `--answers`, else those of the run's config if they are here; None if no LLM answers.

    Raises:
        ConfigError: they cannot be read, or `--answers` is given and no LLM answers.
    """
    from cluster.storage import remote
    from jobs.measure.answers.frame import answering, gold_answers

    settings, given = folder.config.evaluate, options.answers
    if not answering(folder):
        if given is not None:
            what = f"--answers {given}: no LLM answers in {folder.storage.root}, whose config has no `answer`"
            raise ConfigError("argument", f"{what}; leave it out")
        return None
    if given is None and settings.answers is not None and not (remote(settings.answers) or Path(settings.answers).exists()):
        words = f"gold answers {settings.answers} are not here; answers are not measured (--answers names others)"
        print(f"dmqr {options.verb}: {words}", file=sys.stderr)
        return None
    return gold_answers(settings, given, options.key)


def check_matched(judgements: Judgements, warning: str | None, not_committed: int) -> None:
    """Checks that judgements which arguments name are of the log.

    Args:
        judgements: to check.
        warning: why nothing is measured; None if something is.
        not_committed: number of judged keys of the log whose query is not committed.

    Raises:
        ConfigError: they name nothing of it: another log's, or another key.
    """
    if warning is not None and not not_committed:
        raise ConfigError("judgements", f"{judgements.path}: {warning}; give other judgements, or another --key")


def check_samples(options: argparse.Namespace) -> None:
    """Checks `--samples`.

    Raises:
        ConfigError: it is less than 0.
    """
    if options.samples is not None and options.samples < 0:
        raise ConfigError("argument", f"--samples {options.samples}: is less than 0; give 0 or more")
