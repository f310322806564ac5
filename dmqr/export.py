"""Export of a finished run from Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmqr.results import Run

Folder = str | os.PathLike[str]


def export(
    run: Run | Folder,
    to: str,
    /,
    *,
    hits: int = 10,
    promote: bool = False,
    qrels: Folder | None = None,
    key: str | None = None,
    **bounds: float | None,
) -> dict[str, Any]:
    """Writes the look-up rows of a finished run as a version, as `dmqr export --json` does; with `promote` makes it current.

    Args:
        run: a run, or its folder, as `open` takes it.
        to: a folder or s3://BUCKET/FOLDER of versions.
        hits: documents of a query at most.
        promote: whether to make the version current, if its checks hold.
        qrels: judgements to check quality by; None: those of the run's config, else of its judge.
        key: what they name: log_id, query_id or query; None: as the run's config says.
        bounds: keys of `publish` that replace the run's: `error_rate`, `coverage`, `quality_loss`; None: no bound.

    Raises:
        DmqrError: a check failed (`code` is export-bound), or the run, an argument or the target does not allow it.
    """
    from jobs.runs.folder import open_run
    from jobs.verbs.export import exported
    from jobs.verbs.inputs import GroundTruth

    named: dict[str, Any] = {"qrels": None if qrels is None else os.fspath(qrels), "key": key}
    truth = GroundTruth(lambda _: None, "qrels", dashes="", **named) if promote else None
    folder = os.fspath(run) if isinstance(run, str | os.PathLike) else run.folder
    return exported(open_run(folder), to, hits, bounds, truth).values()
