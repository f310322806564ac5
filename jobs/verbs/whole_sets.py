"""An ablation over several data sets that is brought to its end: one after the other, then one table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.job.prepare import leave
from jobs.verbs.caller import Caller

if TYPE_CHECKING:
    from cluster.storage import Storage
    from jobs.config.config import Config
    from jobs.job.prepare import Prepared, Ready
    from jobs.pages.sets.compared import ComparedSets


def whole_sets(
    config: Config, config_path: str, caller: Caller, ready: Ready = leave, measures: Sequence[str] | None = None
) -> ComparedSets:
    """Brings the ablation of each set to its end, in a folder below that of all, compares the arms over sets, and writes pages.

    All sets are checked before any work is done. One that is stopped goes on with the same call; finished ones are not done
    again.

    Args:
        config: with `ablate.sets`.
        config_path: its file.
        caller: who called it.
        ready: may build indexes that are missing.
        measures: to compare the arms by; None: those of the config. They change nothing of what is stored.

    Raises:
        Stopped: one set ended early, which the line names.
        DmqrError: one was refused; likewise.
    """
    from cluster.run.shards import SUCCESS
    from cluster.storage import open_storage
    from jobs.config.set_configs import of_set, sets_of
    from jobs.pages.closing import ComparedArms
    from jobs.pages.sets.compared import compared_sets, write_set_pages
    from jobs.run.ablation import prepare_ablation
    from jobs.runs.folder import REPORT
    from jobs.runs.sets.folder import record_sets
    from jobs.verbs.whole_ablation import whole_ablation

    configs = sets_of(config)
    checked = checked_sets(configs, config_path, ready, measures)
    named = {name: one.run_id for name, one in checked.items()}
    whole, place = sets_place(config, checked)
    storage = open_storage(place)
    if caller.told:  # else nobody asks storage; the page comes last: without it no start has come to its end, nor told it
        closed = all(storage.stat(key) is not None for key in (SUCCESS, REPORT))
        caller.told.about(whole, storage.root, new=not closed)

    def record(status: str) -> None:
        record_sets(storage, whole, config, str(Path(config_path).absolute()), named, status)

    of_budget = budget_warnings(config)
    found: dict[str, ComparedArms] = {}
    said: dict[str, tuple[str, ...]] = {}
    with _held(storage, record):
        for name, one in configs.items():
            with of_set(name):  # checked anew, since an index may have changed while the sets before were worked on
                job = prepare_ablation(one.model_copy(update={"output": storage.root}), config_path, ready, measures)
                prepared = replace(job.prepared, warnings=job.prepared.warnings + of_budget)
                found[name], said[name] = whole_ablation(replace(job, prepared=prepared), caller, measures), prepared.warnings
        record("finished")
        compared = replace(compared_sets(storage.root, found), warnings=warnings_of_sets(said))
        write_set_pages(compared)
    caller.told.ended(compared)
    return compared


def checked_sets(
    configs: Mapping[str, Config], config_path: str, ready: Ready = leave, measures: Sequence[str] | None = None
) -> dict[str, Prepared]:
    """Returns the ablation of each set as it is checked.

    Args:
        configs: of the sets.
        config_path: the file of them all.
        ready: may build indexes that are missing.
        measures: that arms will be compared by; None: those of the config.

    Raises:
        DmqrError: one was refused; the line names the set.
    """
    from jobs.config.set_configs import of_set
    from jobs.run.ablation import prepare_ablation

    checked = {}
    for name, one in configs.items():
        with of_set(name):
            checked[name] = prepare_ablation(one, config_path, ready, measures, criteria=False).prepared
    return checked


def budget_warnings(config: Config) -> tuple[str, ...]:
    """Returns what is to be said of the budget of an ablation over sets, which each set has for itself."""
    from jobs.terminal.formats import money

    most, sets = config.limits.max_cost_usd, len(config.ablate.sets)
    if most is None or sets < 2:
        return ()
    whole = f"{money(most)} are the limit of each of the {sets} sets, {money(sets * most)} that of all of them"
    return (f"limits.max_cost_usd: {whole}; to bound the whole, divide it by the number of sets",)


def warnings_of_sets(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Returns the distinct warnings of sets, those that are not of all with the names of theirs."""
    of: dict[str, list[str]] = {}
    for name, warnings in said.items():
        for words in dict.fromkeys(warnings):
            of.setdefault(words, []).append(name)
    return tuple(
        words if len(names) == len(said) else f"{'sets' if names[1:] else 'set'} {', '.join(names)}: {words}"
        for words, names in of.items()
    )


def sets_place(config: Config, checked: Mapping[str, Prepared]) -> tuple[str, str]:
    """Returns name and place of the folder of an ablation over sets, by what decides the results of each."""
    from cluster.storage import open_storage
    from jobs.job.keys import fingerprint, run_id

    name = run_id(config, {"sets": {of: fingerprint(one.identity) for of, one in checked.items()}})
    return name, open_storage(config.output).url(name)


@contextmanager
def _held(storage: Storage, record: Callable[[str], None]) -> Iterator[None]:
    """Holds the folder while the body works on it, and records how it ended."""
    from cluster.run.lease import Lease

    lease = Lease.acquire(storage)
    try:
        record("running")
        try:
            yield
        except BaseException:
            record("stopped")
            raise
    finally:
        lease.release()
