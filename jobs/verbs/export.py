"""The verb export: a finished run as a version of look-up rows, and that version made current."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from jobs.export.checks import DoneExport
    from jobs.runs.folder import RunFolder
    from jobs.verbs.inputs import GroundTruth


def exported(
    run: RunFolder,
    to: str,
    hits: int,
    bounds: Mapping[str, Any],
    promotes: GroundTruth | None,
    phase: Callable[[str], object] = lambda _: None,
) -> DoneExport:
    """Exports a finished run to a folder or an S3 prefix, and promotes the version if its checks hold.

    Args:
        run: Finished, with results of its own.
        to: The folder of versions.
        hits: Documents of a query at most.
        bounds: Keys of the config's `publish` that replace the run's.
        promotes: What quality is measured by; None: the version is not promoted.
        phase: Told what is done.

    Raises:
        NotPromotedError: A check failed.
        DmqrError: The run, an argument or what lies at the target does not allow it.
    """
    from jobs.config.load import changed_config
    from jobs.export.checks import DoneExport, checks, not_promoted
    from jobs.export.versions import current, export_version, open_target, promote
    from jobs.log.judgements import check_here
    from jobs.verbs.inputs import judged_or_named

    if run.is_ablation:
        what = "an ablation, with results of several arms"
        raise ConfigError("argument", f"{run.storage.root}: is {what}; run the config as a whole run, and export that")
    if not run.finished:
        raise ConfigError("argument", f"{run.storage.root}: is not finished ({run.state}); run it to its end first")
    if hits < 1:
        raise ConfigError("argument", f"--hits {hits}: is less than 1; give 1 or more")
    changes = {f"publish.{name}": value for name, value in bounds.items()}
    settings = changed_config(run.config, changes, run.storage.root).publish
    storage = open_target(to)
    version, existed = export_version(storage, run, hits, phase)
    made, now = [], current(storage) or {}
    if promotes is not None:
        phase("checking")
        if promotes.qrels is None and settings.quality_loss is not None:
            check_here(run.config.evaluate.qrels, "publish.quality_loss", promotes.where)
        made = checks(run, version, settings, judged_or_named(promotes, run))
        if failed := [one for one in made if not one.passed]:
            raise not_promoted(version, failed)
        now = {"version": version.run_id, "before": promote(storage, version)}
    return DoneExport(version, storage.url(version.run_id), existed, made, now.get("version"), now.get("before"))
