"""Nightly work: jobs on a Ray cluster, the list of runs, versions for a search, the store."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cluster.errors import ConfigError
from dmqr.face import Face, caller
from dmqr.previews import config_or_none
from dmqr.quality import Truth
from dmqr.results import Folder, Result, Run
from dmqr.whole_jobs import Settings, configured

if TYPE_CHECKING:
    from cluster.run.job_server import JobServer, SubmittedJob
    from cluster.storage import Storage
    from jobs.log.judgements import Key


def submit(
    config: Folder,
    /,
    *,
    address: str | None = None,
    date: str | None = None,
    label: str | None = None,
    as_ablation: bool = False,
    detach: bool = False,
    pip: Sequence[str] | None = None,
    uv: Sequence[str] | None = None,
    render: bool = False,
    **settings: Any,
) -> Result | str:
    """Submits run or ablate to a Ray cluster and follows it.

    A job that is submitted twice is followed, or goes on.

    Args:
        config: a YAML file, e.g. configs/quickstart.yaml
        address: of the cluster's job server, like http://HEAD:8265 (default: RAY_API_SERVER_ADDRESS)
        as_ablation: the job is `ablate CONFIG` (default: `run CONFIG`)
        detach: print the job's id and leave it to work (default: follow it)
        pip: packages that the nodes install for this job with pip: requirements, or files of them
        uv: packages that the nodes install for this job with uv: requirements, or files of them
        render: print a RayJob for Kubernetes, with the config in a ConfigMap, in place of submitting

    Example:
        dmqr submit configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from cluster.run.job_server import JobServer
    from jobs.submit.render import rendered
    from jobs.submit.submit import check_sent, package_lists
    from jobs.submit.submit import submit as send

    face = caller()
    verb: Literal["run", "ablate"] = "ablate" if as_ablation else "run"
    if render:
        for name, value in (("detach", detach), ("--json", face.as_json), ("pip", pip), ("uv", uv)):
            if value:
                raise ConfigError("argument", f"{name}: does not apply to --render; leave it out, or submit with --address")
        return rendered(*configured(config, settings, date, label), verb)
    address = _address(address, ", or render")
    again, packages = face.again(config, settings, address), package_lists(pip, uv)
    given, file = configured(config, settings, date, label)
    sent, server = check_sent(given, file, verb), JobServer(address)
    job_id, is_new = send(server, given, file, verb, sent, again, packages)
    face.note(f"job {job_id} {'submitted' if is_new else 'is working already'} at {server.address}")
    if detach:
        return Result({"job": job_id, "address": server.address, "submitted": is_new}, None, job_id, notes=face.notes)
    return _followed(face, server, job_id)


def _followed(face: Face, server: JobServer, job_id: str) -> Result:
    from jobs.submit.follow import FollowedLog, follow

    stream = io.StringIO() if face.json_log is None else sys.stderr
    log = FollowedLog(stream if face.as_json or face.json_log is None else sys.stdout, stream, face.json_log is True)
    try:
        job = follow(server, job_id, log.write, note=face.note)
    except KeyboardInterrupt:
        at = f"{job_id} --address {server.address}"
        ways = f"follow it with: {face.program} logs {at}; stop it with: {face.program} stop {at}"
        raise KeyboardInterrupt(f"the job {job_id} works on; {ways}") from None
    log.close()
    values = {"job": job.id, "address": server.address, "status": job.status, "code": job.code}
    result = Result(values | {"folder": log.last if job.code == 0 else None}, notes=face.notes)
    if job.code:
        why = " ".join(job.message.split("last available logs")[0].split())[:300].rstrip(" ,")
        ways = "the same command submits it again and goes on" if job.code != 2 else "correct what the line above names"
        result.code = job.code
        result.failure = f"job {job.id}: {job.status.lower()}: {why or 'no reason given'}; {ways}"
    return result


def logs(
    job: Folder,
    /,
    *,
    address: str | None = None,
    date: str | None = None,
    label: str | None = None,
    no_follow: bool = False,
    **settings: Any,
) -> str:
    """Prints what a submitted job prints, to its end.

    Args:
        job: a config, a run's folder, <output>/<name>, or the id that `submit` prints
        label: with a config: that it was submitted with
        no_follow: print what is there, and end

    Example:
        dmqr logs configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from jobs.submit.follow import FollowedLog, follow

    face, (server, attempt) = caller(), _newest_attempt(os.fspath(job), settings, address, date, label)
    stream = io.StringIO() if face.json_log is None else sys.stdout
    log = FollowedLog(stream, stream, face.json_log is not False)
    try:
        if no_follow:
            log.write(server.log(attempt.id))
        else:
            follow(server, attempt.id, log.write, note=face.note)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the job {attempt.id} works on") from None
    log.close()
    return stream.getvalue() if isinstance(stream, io.StringIO) else ""


def stop(
    job: Folder, /, *, address: str | None = None, date: str | None = None, label: str | None = None, **settings: Any
) -> Result:
    """Stops a submitted job; shards under way are committed.

    Example:
        dmqr stop configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from jobs.submit.follow import follow

    face, (server, attempt) = caller(), _newest_attempt(os.fspath(job), settings, address, date, label)
    if worked := not attempt.ended:
        face.note(f"job {attempt.id} is told to stop; it commits the shards under way")
        server.stop(attempt.id)
        attempt = follow(server, attempt.id, lambda text: None)
    values = {"job": attempt.id, "status": attempt.status, "worked": worked}
    line = f"{attempt.id}: {'' if worked else 'had ended before: '}{attempt.status.lower()}"
    return Result(values, None, line, notes=face.notes)


def _newest_attempt(
    job: str, settings: Settings, address: str | None, date: str | None, label: str | None
) -> tuple[JobServer, SubmittedJob]:
    """Returns the job server, and the newest attempt of the job that is named."""
    from cluster.run.job_server import JobServer
    from jobs.submit.ids import VERBS, find_job, submission_id
    from jobs.submit.sent_config import sent_config

    address, named = _address(address), config_or_none(job, settings, date, label)
    targets = [job] if named is None else [submission_id(named[0], sent_config(named[0]), verb) for verb in VERBS]
    server = JobServer(address)
    return server, find_job(server.jobs(), *targets)


def _address(given: str | None, otherwise: str = "") -> str:
    address = given or os.environ.get("RAY_API_SERVER_ADDRESS")
    if not address:
        raise ConfigError("argument", f"address is missing; give the job server's, like http://HEAD:8265{otherwise}")
    return address


def runs(
    output: Folder,
    /,
    *,
    date: str | None = None,
    prices: str | None = None,
    last: int | None = None,
    out: str | None = None,
    **settings: Any,
) -> Result:
    """Lists runs with quality and cost, or shows how far one is.

    Args:
        output: a config, for the runs of its name; an output, or <output>/<name>; or a run's folder, for how far it is
        last: only the newest N runs (default: all)
        out: writes the list as a page to FILE, too

    Example:
        dmqr runs configs/quickstart.yaml
    """
    from cluster.storage import open_storage
    from jobs.measure.run_list import find_output, list_runs, prices_of
    from jobs.pages.render import write_page
    from jobs.pages.upkeep import runs_page, runs_table, status_page
    from jobs.runs.status import read_status, status_values

    if last is not None and last < 1:
        raise ConfigError("argument", f"last {last}: is less than 1; give 1 or more")
    given, config_file = os.fspath(output), None
    name: str | None
    if (named := config_or_none(given, settings, date)) is not None:
        config, config_file = named
        storage, name = open_storage(config.output), config.name
    elif (status := read_status(given)) is not None:
        return Result(status_values(status), status_page(status), title=status.folder)
    else:
        storage, name = find_output(given)
    listed = list_runs(storage, name, prices_of(prices, config_file))[-(last or 0) :]
    if not listed:
        of_name = "" if name is None else f" of the name {name}"
        raise ConfigError("run-missing", f"{storage.root}: no run{of_name} lies there; start one with: dmqr run CONFIG")
    if out is not None:
        write_page(out, runs_page(storage.root, listed))
    return Result({"output": storage.root, "runs": listed}, runs_table(listed).terminal())


def export(
    run: Run | Folder,
    to: str,
    /,
    *,
    hits: int = 10,
    promote: bool = False,
    qrels: Folder | None = None,
    key: Key | None = None,
    **settings: float | None,
) -> Result:
    """Writes a run's rows for a search, and promotes good ones.

    The rows of a finished run are a version; it becomes current if errors, coverage and quality are within bounds.

    Args:
        run: a run's folder, or <output>/<name> for its newest finished run; in Python also a `Run`
        to: where versions lie, here or on S3
        settings: with --promote: another bound, like publish.coverage=0.9; null: none
        hits: documents of a query at most (default: 10)
        promote: make the version current, if its checks hold
        qrels: with --promote: judgements to check quality by (default: those of the run's config, else of its judge)

    Raises:
        DmqrError: a check failed (`code` is export), or the run, an argument or the target does not allow it.

    Example:
        dmqr export runs/quickstart --to runs/published --promote --set publish.error_rate=0.05
    """
    from jobs.config.load import changed_config
    from jobs.export.checks import checks, not_promoted
    from jobs.export.versions import current, export_version, open_target
    from jobs.export.versions import promote as make_current
    from jobs.log.judgements import is_here
    from jobs.pages.upkeep import export_page
    from jobs.runs.folder import open_run

    for name, value in (("qrels", qrels), ("key", key), ("settings", settings)):
        if value and not promote:
            raise ConfigError("argument", f"{name}: applies to a promotion; add promote")
    bounds = {name.replace("__", "."): value for name, value in settings.items()}
    for name in bounds:
        if not name.startswith("publish."):
            raise ConfigError("argument", f"settings {name}: is not a bound; give one like publish.coverage=0.9")
    face, folder = caller(), open_run(os.fspath(run) if isinstance(run, str | os.PathLike) else run.folder)
    if folder.is_ablation:
        what = "an ablation, with results of several arms"
        raise ConfigError("argument", f"{folder.storage.root}: is {what}; run the config as a whole run, and export that")
    if not folder.finished:
        raise ConfigError("argument", f"{folder.storage.root}: is not finished ({folder.state}); run it to its end first")
    if hits < 1:
        raise ConfigError("argument", f"hits {hits}: is less than 1; give 1 or more")
    publish = changed_config(folder.config, bounds, folder.storage.root).publish
    storage = open_target(to)
    with face.working("export") as display:
        version, existed = export_version(storage, folder, hits, display.phase)
        checked, now = [], current(storage) or {}
        if promote:
            display.phase("checking")
            named = folder.config.evaluate.qrels
            if qrels is None and publish.quality_loss is not None and named is not None and not is_here(named):
                what = "is missing, so publish.quality_loss would be measured by other grades"
                raise ConfigError("judgements", f"evaluate.qrels {named}: {what}; give --qrels FILE")
            truth = Truth(folder, qrels, key, note=face.note)
            checked = checks(folder, version, publish, truth.judgements)
            if failed := [one for one in checked if not one.passed]:
                raise not_promoted(version, failed)
            now = {"version": version.run_id, "before": make_current(storage, version)}
    done = {"place": storage.url(version.run_id), "existed": existed, "checks": [one._asdict() for one in checked]}
    values = vars(version) | done | {"current": now.get("version"), "before": now.get("before")}
    return Result(values, export_page(values), values["place"], notes=face.notes)


def store_gc(store: Folder, /, *, unused: str, dry_run: bool = False, date: str | None = None, **settings: Any) -> Result:
    """Merges a store's files, and removes what is old or unused.

    Old are rows of more than store_ttl; unused is what no job has read for --unused.

    Args:
        store: a config, for its store, or the folder of a store
        unused: remove spaces (of one model, index or reranker) that no job has used for so long: 12h, 30d, 8w
        dry_run: only say what would go

    Example:
        dmqr store gc configs/quickstart.yaml --unused 30d
    """
    from cluster.settings import DURATION, duration_seconds
    from jobs.pages.upkeep import collected_page
    from jobs.store.collect import collect
    from jobs.store.compact import Compacted, compact

    storage, _, oldest = _stored(os.fspath(store), settings, date)
    if not re.fullmatch(DURATION, unused):
        raise ConfigError("argument", f"unused {unused}: is not a duration; give one like 12h, 30d or 8w")
    compacted: list[Compacted] = []
    if not dry_run:
        with caller().working("store") as display:
            display.phase("compacting")
            compacted = compact(storage, oldest=oldest)
    collected = collect(storage, duration_seconds(unused), oldest=oldest, dry_run=dry_run)

    def rows(done: Sequence[Any]) -> list[dict[str, Any]]:
        return [row.space._asdict() | {name: value for name, value in row._asdict().items() if name != "space"} for row in done]

    values = {"store": storage.root, "dry_run": dry_run, "compacted": rows(compacted), "collected": rows(collected)}
    return Result(values, collected_page(compacted, collected, unused, dry_run=dry_run), storage.root)


def store_forget(
    store: Folder,
    query: str,
    /,
    *,
    context: str | None = None,
    own: bool = False,
    all: bool = False,
    dry_run: bool = False,
    date: str | None = None,
    **settings: Any,
) -> Result:
    """Removes a query, and all that has its words, from a store.

    Args:
        query: the query, in quotes
        context: the earlier turns, of the query after them
        own: leave the rows of other queries that have its words
        all: its words go, in however many other queries they stand
        dry_run: only say what would go

    Example:
        dmqr store forget configs/quickstart.yaml "a query" --dry-run
    """
    from jobs.pages.upkeep import forgotten_page, holding_runs
    from jobs.store.forget import forget

    if own and all:
        raise ConfigError("argument", "own: contradicts --all; give one of them")
    storage, output, _ = _stored(os.fspath(store), settings, date)
    others = "none" if own else "all" if all else "some"
    forgotten = forget(storage, query, output, context=context, others=others, dry_run=dry_run)
    values = {
        "store": storage.root, "query_id": forgotten.query_id, "others": sorted(forgotten.others),
        "rows": dict(forgotten.rows), "files": forgotten.files, "runs": forgotten.runs, "dry_run": dry_run,
    }  # fmt: skip
    return Result(values, forgotten_page(forgotten, dry_run=dry_run), *holding_runs(forgotten), storage.root)


def _stored(given: str, settings: Settings, date: str | None) -> tuple[Storage, Storage | None, int]:
    """Returns the store of a config or a folder, where its runs lie, and the oldest time of a row that counts (`store_ttl`)."""
    from cluster.storage import open_storage
    from jobs.chain.store.files import oldest_of
    from jobs.chain.store.layout import VERSION
    from jobs.store.contents import check_store

    if (named := config_or_none(given, settings, date)) is not None:
        config, _ = named
        if config.store_folder is None:
            raise ConfigError("argument", f"{given}: its config sets store: null; give the folder of a store")
        storage = open_storage(config.store_folder)
        check_store(storage, config.store_folder)
        return storage, open_storage(config.output), oldest_of(config.store_lifetime, time.time())
    storage = open_storage(given)
    if VERSION not in storage.folders() and VERSION in (below := open_storage(storage.url("store"))).folders():
        storage = below  # an output was given
    check_store(storage, given)
    above, _, name = storage.root.rpartition("/")
    return storage, open_storage(above) if name == "store" else None, 0
