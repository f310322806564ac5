"""What a run is measured against: judgements and gold answers, as a caller gives them or as the run's config has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError, nearest

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.config.settings import EvaluateSettings
    from jobs.log.judgements import Judgements, Key
    from jobs.measure.answers.frame import GoldAnswers
    from jobs.runs.folder import RunFolder


class GroundTruth(NamedTuple):
    """What a caller says of what a run is measured against."""

    note: Callable[[str], object]
    """Is told what the run's config names and is not here."""
    where: str
    """The argument that names judgements, for messages."""
    qrels: str | Judgements | None = None
    """Judgements, or their file; None: those of the run's config."""
    key: Key | None = None
    """What they name; None: as the run's config says."""
    answers: str | None = None
    """A file of gold answers; None: that of the run's config."""
    judged: bool = False
    """Whether to measure by the run's judge alone."""
    dashes: str = "--"
    """What stands before the names of other arguments, for messages."""


def prices_of_run(folder: RunFolder, path: str | None = None) -> Prices | None:
    """Returns the prices of a file, by default of that beside the config of the run; None if there are none.

    Raises:
        ConfigError, ClusterError: they are invalid.
    """
    from cluster.costs import load_prices

    return load_prices(Path(path or Path(folder.record.get("config_file", "")).with_name("prices.yaml")))


def judgements_of(truth: GroundTruth, folder: RunFolder) -> Judgements | None:
    """Returns the judgements that are given, else those of the run's config if they are here.

    Raises:
        ConfigError: they cannot be read.
    """
    from jobs.log.judgements import is_here, read_qrels

    settings = folder.config.evaluate
    if truth.qrels is None and settings.qrels is not None and not is_here(settings.qrels):
        truth.note(f"judgements {settings.qrels} are not here; nothing is measured ({truth.where} names others)")
        return None
    if truth.qrels is not None and not isinstance(truth.qrels, str):
        return truth.qrels
    qrels, where = truth.qrels or settings.qrels, truth.where if truth.qrels else "evaluate.qrels"
    return read_qrels(qrels, where, truth.key or settings.key) if qrels else None


def judged_or_named(truth: GroundTruth, folder: RunFolder) -> Judgements | None:
    """Returns the judgements that are given, else those of the run's config, else those of its judge.

    Raises:
        ConfigError: they cannot be read.
    """
    from jobs.measure.judged.relevance import judged_relevance

    if truth.judged and truth.qrels is not None:
        what = f"{truth.dashes}judged: measures by the run's judge, and {truth.where} names a file"
        raise ConfigError("argument", f"{what}; leave one out")
    named = None if truth.judged else judgements_of(truth, folder)
    if named is None:
        return judged_relevance(folder)
    return of_run(named, folder)


def measured_by(
    settings: EvaluateSettings, judgements: Judgements | None, measures: Sequence[str] | None = None
) -> EvaluateSettings:
    """Returns the settings with these measures, or where none are given those that the judgements are for."""
    if measures is None:
        measures = settings.measures if judgements is None else judgements.measures(settings.measures)
    return settings.model_copy(update={"measures": list(measures)})


def compared_by(settings: EvaluateSettings, given: Mapping[str, Any]) -> EvaluateSettings:
    """Returns the settings with those of a caller: `baseline`, `baselines`, `pairs`; None: as they were.

    With a baseline alone, that of all arms is meant.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    if "baseline" in changes:
        changes.setdefault("baselines", {})
    return settings.model_copy(update=changes)


def named_baselines(words: Sequence[str] | None, folder: RunFolder, flag: str) -> dict[str, Any]:
    """Returns what words like `original` or `bm25*=original_bm25` say of baselines, as `compared_by` takes it.

    Raises:
        ConfigError: the folder is that of a run, or a word names no arm.
    """
    if words is None:
        return {}
    if not folder.is_ablation:
        raise ConfigError("argument", f"{flag}: {folder.storage.root} is a run, which has no arms; leave it out")
    arms = {name for arm in folder.record["ablation"]["arms"] for name in (arm["name"], *(arm.get("also") or ()))}
    found: dict[str, Any] = {"baselines": {}}
    for word in words:
        ends = [place for place, sign in enumerate(word) if sign == "=" and word[place + 1 :] in arms and place]
        if word in arms:
            found["baseline"] = word
        elif ends:
            found["baselines"][word[: ends[0]]] = word[ends[0] + 1 :]
        else:
            what = f"{flag} {word}: {word.rpartition('=')[2]!r} is no arm{nearest(word.rpartition('=')[2], arms)}"
            raise ConfigError("argument", what)
    return found


def of_run(judgements: Judgements, folder: RunFolder) -> Judgements:
    """Returns the judgements, if they have the ids of the tables of a run; raises ConfigError where they have not."""
    from jobs.job.judged_ids import checked_ids

    return checked_ids(judgements, folder.config)


def gold_of(truth: GroundTruth, folder: RunFolder) -> GoldAnswers | None:
    """Returns the gold answers that are given, else those of the run's config if they are here; None if no LLM answers.

    Raises:
        ConfigError: they cannot be read, or are given and no LLM answers.
    """
    from cluster.storage import remote
    from jobs.measure.answers.frame import answering, gold_answers

    settings, given = folder.config.evaluate, truth.answers
    if not answering(folder):
        if given is not None:
            what = f"{truth.dashes}answers {given}: no LLM answers in {folder.storage.root}, whose config has no `answer`"
            raise ConfigError("argument", f"{what}; leave it out")
        return None
    if given is None and settings.answers is not None and not (remote(settings.answers) or Path(settings.answers).exists()):
        others = f"{truth.dashes}answers names others"
        truth.note(f"gold answers {settings.answers} are not here; answers are not measured ({others})")
        return None
    return gold_answers(settings, given, truth.key)


def check_matched(judgements: Judgements, warning: str | None, not_committed: int, left_out: Sequence[str] = ()) -> None:
    """Checks that judgements which arguments name are of the log, and that a measure looks no deeper than the lists reach.

    Args:
        judgements: to check.
        warning: why nothing is measured; None if something is.
        not_committed: number of judged keys of the log whose query is not committed.
        left_out: which measures are left out.

    Raises:
        ConfigError: they name nothing of it: another log's, or another key.
    """
    if left_out and warning is not None:
        raise ConfigError("config-value", f"evaluate.measures: {warning}")
    if warning is not None and not not_committed:
        raise ConfigError("judgements", f"{judgements.path}: {warning}; give other judgements, or another key")
