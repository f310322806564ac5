"""What of a run goes into its look-up rows, and which runs have any."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import ConfigError, nearest
from jobs.config.publish import PublishSettings
from jobs.job.replay import NOTED
from jobs.measure.list_portions import weightless
from jobs.runs.folder import RunFolder
from jobs.tables import ITERATE, ORIGINAL


@dataclass(frozen=True)
class RowChoice:
    """What of a run goes into its look-up rows.

    Attributes:
        strategies: Whose rewrites; None: those of all.
        min_added: Documents that a rewrite must have added to the first hits.
        hits: First results of a query.
        buckets: Number of buckets.
        salt: What buckets are hashed with.
    """

    strategies: tuple[str, ...] | None = None
    min_added: int = 0
    hits: int = 10
    buckets: int = 100
    salt: str = ""

    @classmethod
    def of(cls, settings: PublishSettings, run: RunFolder) -> RowChoice:
        """Returns what the settings say; strategies in the order of the run.

        Raises:
            ConfigError: The run has no such strategy, or it does not tell what a rewrite has added.
        """
        return cls(
            _known(settings.strategies, run),
            settings.min_added if not settings.min_added else _told(settings.min_added, run),
            settings.hits,
            settings.buckets,
            settings.salt,
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what decides the rows of a run."""
        return asdict(self)


def strategies_of(run: RunFolder) -> list[str]:
    """Returns the strategies whose texts rewrites/ may have, in the order in which rows have them."""
    return [*run.config.rewrite.planned, *[ITERATE] * (run.config.iterate is not None)]


def as_one_of(run: RunFolder) -> dict[str, str]:
    """Returns strategy -> what its one search is made of, of those whose texts make one; its list has the first position."""
    return {one["name"]: one["as_one"] for one in run.strategies if one.get("as_one")}


def check_publishable(run: RunFolder) -> None:
    """Refuses a run without rows of its own to look up.

    Raises:
        ConfigError: It is an ablation or a replay, or is not finished.
    """
    if run.is_ablation:
        what = "is an ablation, whose queries have results of several arms"
        raise ConfigError(
            "publish-run", f"{run.storage.root}: {what}; run the config of the arm that is meant, and export that"
        )
    if (replayed := run.record.get(NOTED)) is not None:
        what = f"is a replay, which has {replayed['queries']:,} queries of {replayed['of']} alone"
        raise ConfigError(
            "publish-run", f"{run.storage.root}: {what}; run that config again with another --label, and export that"
        )
    if not run.finished:
        raise ConfigError("publish-run", f"{run.storage.root}: is not finished ({run.state}); run it to its end first")


def _known(strategies: list[str] | None, run: RunFolder) -> tuple[str, ...] | None:
    known = strategies_of(run)
    for name in strategies or ():
        if name not in known:
            raise ConfigError("argument", f"--strategies: no strategy {name!r} in {run.storage.root}{nearest(name, known)}")
    return None if strategies is None else tuple(name for name in known if name in strategies)


def _told(min_added: int, run: RunFolder) -> int:
    joining = run.config.joining
    if joining and set(joining) == set(run.config.retrieve.retrievers):
        what = f"--min-added: {', '.join(joining)} search all texts as one, so no list says what a rewrite has added"
        raise ConfigError("argument", f"{what}; leave it out")
    if (left := weightless(run, [ORIGINAL])) and not run.config.retrieve.keep_runs:
        what = f"--min-added: {', '.join(left)} may be left out of fusion, and no list was kept (retrieve.keep_runs)"
        raise ConfigError("argument", f"{what}, so nothing says what the original found; leave it out")
    return min_added
