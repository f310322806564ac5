"""What `export`, `promote` and `rollback` do: the settings of a run and those of a caller, a version and a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from jobs.config.publish import PublishSettings
    from jobs.log.judgements import Judgements
    from jobs.publish.export import DoneExport
    from jobs.publish.promote import PromotedVersion
    from jobs.publish.target import Target
    from jobs.runs.folder import RunFolder
    from jobs.verbs.inputs import GroundTruth


class ExportArguments(NamedTuple):
    """What a caller says of an export.

    Attributes:
        settings: Keys of the config's `publish` -> values that come before the run's.
        version: Its name; None: that of the run.
        since: The version that it is compared with.
        options: Options of formats that are not at their default.
        access: The environment variables with the address and the API key of Elasticsearch, where they are not the usual ones.
    """

    settings: Mapping[str, Any] = {}
    version: str | None = None
    since: str | None = None
    options: Mapping[str, Any] = {}
    access: tuple[str | None, str | None] = (None, None)


def exported(run: RunFolder, given: ExportArguments, phase: Callable[[str], object] = lambda _: None) -> DoneExport:
    """Exports a finished run, or finds it exported.

    Raises:
        DmqrError: The run, an argument or what lies at the target does not allow it.
    """
    from jobs.publish.choice import RowChoice, check_publishable
    from jobs.publish.export import WantedExport, checked_version, version_of
    from jobs.publish.formats.format import check_held_out, open_formats, options_of
    from jobs.publish.training.measured import asking_prompts, measured_gains

    check_publishable(run)
    settings = _settings(run, given.settings)
    formats = open_formats(settings.formats)
    options = options_of(formats, given.options)
    check_held_out(options, settings.buckets)
    wanted = WantedExport(
        run,
        version_of(run, given.version),
        RowChoice.of(settings, run),
        formats,
        options,
        None if given.since is None else checked_version(given.since, "--since"),
        measured_gains(run, options),
        asking_prompts(run, options),
    )
    return _target(settings, given.access).export(wanted, phase)


class PromoteArguments(NamedTuple):
    """What a caller says of a promotion.

    Attributes:
        settings: Keys of the config's `publish` -> values that come before the run's.
        version: Its name; None: that of the run.
        access: As of `ExportArguments`.
        check: Whether it is only looked at.
    """

    settings: Mapping[str, Any] = {}
    version: str | None = None
    access: tuple[str | None, str | None] = (None, None)
    check: bool = False


def promoted(run: RunFolder, given: PromoteArguments, truth: GroundTruth) -> PromotedVersion:
    """Promotes a version of a run, if the gates hold; `truth`: what its quality is measured by.

    Raises:
        DmqrError: A gate does not hold (`GateError`), or the version, an argument or the target does not allow it.
    """
    from jobs.log.judgements import check_here
    from jobs.publish.choice import check_publishable
    from jobs.publish.export import version_of
    from jobs.publish.promote import promote
    from jobs.verbs.inputs import judged_or_named

    check_publishable(run)
    settings = _settings(run, given.settings)
    bounds = settings.gates.quality.model_dump().values()
    if truth.qrels is None and any(bound is not None for bound in bounds):
        check_here(run.config.evaluate.qrels, "publish.gates.quality", truth.where)
    target, judgements = _target(settings, given.access), judged_or_named(truth, run)
    if truth.qrels is not None and judgements is not None:
        _check_of_log(run, judgements)
    return promote(target, run, version_of(run, given.version), settings.gates, judgements, check=given.check)


def rolled_back(to: str, access: tuple[str | None, str | None] = (None, None), *, check: bool = False) -> PromotedVersion:
    """Promotes the version before the promoted one of a target.

    Raises:
        DmqrError: There is none, or it is gone.
    """
    from jobs.publish.promote import rollback
    from jobs.publish.target import open_target

    return rollback(open_target(to, *access), check=check)


def _check_of_log(run: RunFolder, judgements: Judgements) -> None:
    """Refuses judgements that an argument names, and that are of another log, or by another key, as `evaluate` does."""
    from jobs.measure.judged_rows import counted_keys, database
    from jobs.measure.notes import nothing_measured
    from jobs.verbs.inputs import check_matched

    with database(run) as connection:
        counted = counted_keys(connection, run, judgements)
    if not counted.keys:
        why = nothing_measured(counted.judged, counted.not_committed, counted.unmatched, judgements.key)
        check_matched(judgements, why, counted.not_committed)


def _settings(run: RunFolder, given: Mapping[str, Any]) -> PublishSettings:
    from jobs.config.load import changed_config

    changes = {f"publish.{key}": value for key, value in given.items()}
    return changed_config(run.config, changes, run.storage.root).publish


def _target(settings: PublishSettings, access: tuple[str | None, str | None]) -> Target:
    from jobs.publish.target import open_target

    if settings.to is None:
        raise ConfigError("argument", "--to is missing: where versions lie; give a target, or set publish.to in the config")
    return open_target(settings.to, *access)
