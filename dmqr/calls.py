"""The functions: each takes a config and overrides, or a folder, and has the verb of its name do the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmqr.quality import JoinedQuality
    from dmqr.results import Ablation, Run
    from dmqr.rows import Planned, Rewrites
    from jobs.config.config import Config
    from jobs.config.given import ConfigSource
    from jobs.verbs.caller import Caller

Settings = Mapping[str, Any]
OnProgress = Callable[[dict[str, Any]], object]


def run(
    config: ConfigSource,
    settings: Settings | None = None,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    progress: OnProgress | None = None,
    **overrides: Any,
) -> Run:
    """Brings a run to its end, measures it, writes its page, and returns it; a run that was stopped goes on.

    Args:
        config: a YAML file's path, a mapping, or a `Config`.
        settings: overrides by key, like `{"fuse.k": 10}`.
        date: what `{date}` stands for, as YYYY-MM-DD; None: yesterday (UTC).
        label: stands in the name of the run's folder; another label is another run.
        progress: is called about once a second, in this thread, with what `progress.json` holds; what it raises ends the run.
        overrides: overrides by keyword: `fuse__k=10`.

    Raises:
        Stopped: the run ended early; what is committed stays, and the same call goes on.
        DmqrError: it was refused, and nothing was done.
    """
    from dmqr.results import Run
    from jobs.config.given import file_of
    from jobs.job.prepare import prepare
    from jobs.notify import Notifications
    from jobs.verbs.building import building
    from jobs.verbs.whole_run import whole_run

    given = _config(config, settings, overrides, date, label)
    caller = _caller("run", config, settings, overrides, date or given.log.date, label, progress)
    with Notifications(given.notify, "run", given.name).telling() as told:
        caller = caller._replace(told=told)
        prepared = prepare(given, file_of(config), building(caller, "run"))
        return Run(whole_run(prepared, caller), prepared.warnings)


def ablate(
    config: ConfigSource,
    settings: Settings | None = None,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    progress: OnProgress | None = None,
    **overrides: Any,
) -> Ablation:
    """Gathers what the arms of a config need, answers each, compares them, writes the page, and returns the ablation.

    Arguments and errors are those of `run`.
    """
    from dmqr.results import Ablation
    from jobs.config.given import file_of
    from jobs.notify import Notifications
    from jobs.run.ablation import prepare_ablation
    from jobs.verbs.building import building
    from jobs.verbs.whole_ablation import whole_ablation

    given = _config(config, settings, overrides, date, label)
    caller = _caller("ablate", config, settings, overrides, date or given.log.date, label, progress)
    with Notifications(given.notify, "ablate", given.name).telling() as told:
        caller = caller._replace(told=told)
        job = prepare_ablation(given, file_of(config), building(caller, "ablate"))
        found = whole_ablation(job, caller)
        return Ablation(found.folder, found, job.prepared.warnings)


def plan(
    config: ConfigSource,
    settings: Settings | None = None,
    /,
    *,
    sample: int = 0,
    date: str | None = None,
    label: str | None = None,
    progress: OnProgress | None = None,
    **overrides: Any,
) -> Planned:
    """Returns what a run would do and cost; raises what the run would be refused with.

    Args:
        config: as of `run`; so are the arguments that are not named here.
        settings: likewise.
        sample: queries to pay for, and to keep in the store, that the cost of the others is told by; 0: nothing is paid.
        date: as of `run`.
        label: as of `run`.
        progress: as of `run`; it is told the phase alone.
        overrides: as of `run`.

    Raises:
        DmqrError: the run would be refused.
    """
    from dmqr.rows import Planned
    from jobs.config.given import file_of
    from jobs.terminal.embedded_log import told_progress
    from jobs.verbs.planned import planned

    given = _config(config, settings, overrides, date, label)
    with told_progress(progress) as told:
        found = planned(given, file_of(config), told, sample, "sample")
    return Planned(found.values, found.warnings)


def index(
    config: ConfigSource,
    corpus: str | os.PathLike[str] | Sequence[str] | None = None,
    settings: Settings | None = None,
    /,
    *,
    replace: bool = False,
    progress: OnProgress | None = None,
    **overrides: Any,
) -> list[dict[str, Any]]:
    """Builds the indexes that a config names, as far as they are not built; returns what `dmqr index --json` prints.

    Args:
        config: as of `run`.
        corpus: files or folders; with `retrieve.collections` NAME=PATH; None: those that the config names (`corpus.path`).
        settings: as of `run`.
        replace: whether an index of another corpus is replaced, which is refused otherwise.
        progress: as of `run`; it is told the phase alone.
        overrides: as of `run`.

    Raises:
        DmqrError: the corpus or the config cannot be used.
    """
    from jobs.index.index import index as build
    from jobs.terminal.embedded_log import told_progress

    given = _config(config, settings, overrides)
    paths = [os.fspath(corpus)] if isinstance(corpus, str | os.PathLike) else [os.fspath(one) for one in corpus or ()]
    with told_progress(progress) as told:
        return list(build(given, paths, told, replace=replace))


def rewrite(
    queries: Sequence[str],
    config: ConfigSource,
    settings: Settings | None = None,
    /,
    *,
    context: str | None = None,
    values: Mapping[str, str] | None = None,
    progress: OnProgress | None = None,
    **overrides: Any,
) -> Rewrites:
    """Returns the rewrites of some queries, as `dmqr try` makes them; no log is read, and nothing is retrieved.

    No index is needed, unless a gate or a strategy reads what a query finds.

    Args:
        queries: their texts.
        config: as of `run`.
        settings: as of `run`.
        context: the earlier turns of the conversation, of all queries (`log.context_column`).
        values: column of the log -> what it says of all queries.
        progress: as of `run`; it is told the phase alone.
        overrides: as of `run`.

    Raises:
        DmqrError: a run would refuse what the config says of rewriting, or would reject one of the queries.
    """
    from dmqr.rows import Rewrites
    from jobs.config.given import file_of
    from jobs.index.missing import ready_indexes
    from jobs.terminal.embedded_log import told_progress
    from jobs.try_one.rewritten import rewritten
    from jobs.try_one.trial import Given

    given = _config(config, settings, overrides)
    asked = [queries] if isinstance(queries, str) else list(queries)
    with told_progress(progress) as told:
        found = rewritten(
            asked, given, file_of(config), Given(context, dict(values or {})), told.phase, partial(ready_indexes, progress=told)
        )
    return Rewrites(found)


def open(folder: str | os.PathLike[str]) -> Run | Ablation:
    """Returns a run, or an ablation, that lies in a folder, finished or not.

    Args:
        folder: the run's, here or on S3, or `<output>/<name>` for its newest finished run.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    from dmqr.results import Ablation, Run
    from jobs.runs.folder import open_run
    from jobs.verbs.inputs import prices_of_run
    from jobs.verbs.whole_run import WholeRun

    found = open_run(os.fspath(folder))
    return Ablation(found) if found.is_ablation else Run(WholeRun(found, prices_of_run(found)))


def evaluate(
    *ablations: str | os.PathLike[str],
    measures: Sequence[str] | None = None,
    baseline: str | None = None,
    judged: bool = False,
) -> JoinedQuality:
    """Joins finished ablations, each of one data set, and compares their arms over all sets.

    Args:
        ablations: their folders, two or more.
        measures: as ir_measures names them, like `["nDCG@10", "AP@10"]`; None: those of each config.
        baseline: the arm that arms are compared with; None: that of each config.
        judged: whether to measure by the grades of the judges alone.

    Raises:
        ConfigError: a folder holds no finished ablation, two have one name, or they have nothing in common.
    """
    from dmqr.quality import JoinedQuality
    from jobs.verbs.join import join_ablations

    notes: list[str] = []
    paths = [os.fspath(one) for one in ablations]
    found = join_ablations(paths, notes.append, measures=measures, baseline=baseline, judged=judged, dashes="")
    return JoinedQuality(found, notes)


def _config(
    config: ConfigSource, settings: Settings | None, overrides: Settings, date: str | None = None, label: str | None = None
) -> Config:
    from jobs.config.given import given_config, settings_of

    return given_config(config, settings_of(settings, overrides), date, label)


def _caller(
    verb: str,
    config: ConfigSource,
    settings: Settings | None,
    overrides: Settings,
    date: str | None,
    label: str | None,
    progress: OnProgress | None,
) -> Caller:
    """Returns this program as the caller of a verb."""
    from jobs.config.given import settings_of
    from jobs.terminal.embedded_log import embedded_log
    from jobs.terminal.resuming import PythonCall
    from jobs.verbs.caller import Caller

    shown = repr(os.fspath(config)) if isinstance(config, str | os.PathLike) else "config"
    again = PythonCall.of(f"dmqr.{verb}", shown, settings_of(settings, overrides), {"date": date, "label": label})
    return Caller(partial(embedded_log, told=progress), "dmqr", again)
