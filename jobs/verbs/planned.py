"""What a run, or an ablation of the same config, would do and cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError
from jobs.verbs.drive import warn

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.terminal.live_display import LiveDisplay


class PlannedWork(NamedTuple):
    """A plan as JSON-able values, and what works but probably not as it is meant."""

    values: dict[str, Any]
    warnings: tuple[str, ...]


def planned(config: Config, config_path: str, progress: LiveDisplay, sample: int, where: str) -> PlannedWork:
    """Returns the plan of a config; where it has arms, with what an ablation would do.

    Missing indexes are built.

    Args:
        config: of the run.
        config_path: its file.
        progress: shows the phase.
        sample: queries to pay for.
        where: the argument that says so, for messages.

    Raises:
        DmqrError: the run, or the ablation, would be refused.
    """
    from jobs.config.settings import AblateSettings
    from jobs.index.missing import ready_indexes
    from jobs.job.prepare import leave, prepare
    from jobs.plan.plan import plan
    from jobs.run.ablation import prepare_ablation
    from jobs.run.job import run_of

    if sample < 0:
        raise ConfigError("argument", f"{where} {sample}: is less than 0; give the number of queries to pay for")
    ready = partial(ready_indexes, progress=progress)  # what a run would find in the store is known by its indexes' content
    ablation = None if config.ablate == AblateSettings() else prepare_ablation(config, config_path, ready)
    prepared = prepare(config, config_path, leave if ablation else ready)
    of_arms = () if ablation is None else ablation.prepared.warnings
    warnings = tuple(dict.fromkeys((*prepared.warnings, *run_of(prepared).shallow, *of_arms)))
    warn(warnings)
    return PlannedWork(plan(prepared, progress, ablation, sample), warnings)
