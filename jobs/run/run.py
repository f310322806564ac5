"""The verb `run`: plans the shards once, streams the pending ones, stops in order, finishes."""

import contextlib
import json
import logging
import time
from dataclasses import dataclass, replace
from functools import partial

from cluster import costs
from cluster.errors import ClusterError, DmqrError, RewriterError, Stopped
from cluster.run.lease import STALE_SECONDS, Lease, wait_until_free
from cluster.run.progress import ProgressTracker
from cluster.run.pulse import outages_reported
from cluster.run.runner_local import LocalRunner
from cluster.run.runner_ray import RayRunner
from cluster.run.session import IN_PROCESS, InProcessSession, Session, check_shared
from cluster.run.shards import SUCCESS, Manifest, Plan, Shard, manifests, read_manifest, reopen
from cluster.storage import open_storage
from cluster.storage.s3_client import add_traffic
from jobs.chain.pipeline import ASKING
from jobs.counts import ERROR_QUERIES, FAILED_BY_OUTAGES
from jobs.job.paths import package_folders
from jobs.job.pools import check_shares
from jobs.run.draft import PlannedQueries, begun_plan, draft_plan, gold_of_queries, plan_words, store_plan
from jobs.run.finish import finish, put_latest
from jobs.run.job import Job
from jobs.run.limits import Signals, Stall, limit, outcome, too_many
from jobs.run.money import DriverCosts, RunMoney, most_requests
from jobs.run.progress import driver_gauges, exporter_of, progress_file
from jobs.run.record import Record
from jobs.run.stream import Results, Runner, next_result, stream
from jobs.run.watch import Watch, show_committed
from jobs.runs.starts import known_starts
from jobs.runs.tally import Tally, covered_words, tally_of
from jobs.terminal.formats import queries
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.log_files import LogFiles
from jobs.terminal.logs import event
from jobs.terminal.state import OutageLog

STARTING = "starting the workers"  # until the first worker works


def run(
    job: Job, progress: LiveDisplay, resume_command: str = "the same command", log: LogFiles | None = None
) -> tuple[Plan, Tally]:
    """Runs the job to its end, resuming from the committed shards; returns the plan and the sums of the run.

    Args:
        job: The job.
        progress: Shows the state of the run.
        resume_command: The command that resumes the run, for messages.
        log: Stored in the run's folder, as soon as the lease is held.

    Raises:
        Stopped: The run ended early; committed shards stay.
        ClusterError, ConfigError, RewriterError, RetrieverError: The run was refused before it began.
    """
    prepared = job.prepared
    storage, where, driver_costs = prepared.storage, prepared.storage.root, DriverCosts()
    plan = begun_plan(prepared)
    if plan is not None and storage.stat(SUCCESS) is not None:
        event("resume", f"finished already: {where}")
        if job.is_run:
            put_latest(prepared)
        tally = tally_of(storage)
        show_committed(progress.state, plan, tally)
        starts = known_starts(json.loads(storage.get("run.json") or b"{}"), storage)
        money = RunMoney(prepared, starts, DriverCosts())
        Watch(prepared.prices, progress.state, money.around).still(tally.counts, tally.spent)
        return plan, tally
    before = wait_until_free(storage, time.time(), on_wait=partial(event, "lease"))
    try:
        job.check_engines()
    except RewriterError as error:
        if plan is None or error.code != "server-away":
            raise
        raise Stopped(error.code, f"{error}; resume with: {resume_command}", graceful=False) from error  # it did answer before
    draft = None
    if plan is None and prepared.config.cluster.joined is None:  # first, since its queries may decide whether Ray starts
        progress.phase("reading the log")
        driver_costs.begin("log")
        with Signals(progress, resume_command):
            draft = draft_plan(prepared)
        driver_costs.begin("start")
    counts = plan.counts if plan else draft.plan.counts if draft else {}
    job, why = job.placed(counts.get("queries", 0))
    prepared = job.prepared
    address = prepared.config.cluster.address
    assert address is not None
    if why:
        event("cluster", f"{why} (cluster.address: null)")
    if address != IN_PROCESS:
        progress.phase("starting Ray")
    outages = OutageLog(progress.state)
    session = InProcessSession(job.pools) if address == IN_PROCESS else Session(address, job.pools, package_folders())
    try:
        driver_costs.watch_nodes(session.nodes)
        check_shares(session.pools, *job.configs)
        if not session.local:
            check_shared(prepared.output, "output")
            if prepared.config.own_store is not None:
                check_shared(open_storage(prepared.config.own_store), "store")
        grace = prepared.config.cluster.grace_seconds
        with Signals(progress, resume_command, grace) as signals, outages_reported(partial(outages.update, "driver")):
            if plan is None and draft is None:
                progress.phase("reading the log")
                driver_costs.begin("log")
                draft = draft_plan(prepared, local=False)
            driver_costs.begin("plan", draft.task_seconds if draft else 0.0)
            lease = Lease.acquire(storage, before=before)  # from here on the run writes
            try:
                if log is not None:
                    log.keep(storage)
                record = Record(job, session.pools, lease.number, progress.state, outages, driver_costs)
                put_log = log.store if log else lambda: None
                with (
                    progress_file(storage, lease, progress.state, put_log, record.spent),
                    driver_gauges(prepared, lease, progress.state),
                ):
                    if draft is not None:
                        progress.phase("planning")
                        plan = store_plan(prepared, draft)
                    assert plan is not None
                    event("plan", plan_words(plan), queries=plan.counts["queries"], shards=len(plan.shards), start=lease.number)
                    tally = tally_of(storage)
                    job = replace(job, gold=job.gold or gold_of_queries(prepared, PlannedQueries(plan, storage)))
                    driver = Driver(job, session, lease, record, plan, tally, progress, signals, outages, resume_command)
                    driver.run()
                    return plan, driver.tally
            except Stopped:
                raise
            except DmqrError as error:  # after the start the run fails, it is not refused
                raise Stopped(error.code, error.line, graceful=False) from error
            finally:
                lease.release()
    finally:
        session.close()


def log_commit(manifest: Manifest, committed: int, planned: int) -> None:
    """Logs a commit, and a line for each stage and reason for which queries of the shard failed; never their texts."""
    shard, start, rows = manifest.shard, manifest.start, manifest.counts.get("queries", 0)
    message = f"shard {shard} is committed, {committed} of {planned}"
    event("commit", message, shard=shard, start=start, queries=rows, committed=committed)
    for key, ids in manifest.failed.items():
        stage, _, reason = key.partition("/")
        failed = manifest.counts.get(ERROR_QUERIES.key(stage, reason), len(ids))
        message = f"shard {shard}: {queries(failed)} failed in {stage}: {reason}"
        event("failures", message, shard=shard, start=start, stage=stage, reason=reason, queries=failed, query_ids=ids)


@dataclass
class Driver:
    """A run of the driver that holds its lease."""

    job: Job
    session: Session | InProcessSession
    lease: Lease
    record: Record
    plan: Plan
    tally: Tally
    progress: LiveDisplay
    signals: Signals
    outages: OutageLog
    resume_command: str

    def __post_init__(self) -> None:
        self.prepared = self.job.prepared
        self.most_requests = most_requests(self.job.compiled.work)
        self.spending = RunMoney(self.prepared, self.record.before, self.record.driver_costs)
        self.watch = Watch(self.prepared.prices, self.progress.state, self.spending.around)

    def run(self) -> None:
        """Processes the pending shards, finishes the run, and records its outcome."""
        try:
            self.record.warn_of_changes()
            self.record.driver_costs.begin("work")
            self.work()
            self.record.note_states()
            self.progress.phase("checking and closing")
            self.record.driver_costs.begin("finish")
            counts, put = self.tally.counts, partial(self.record.put, "finished", self.plan, self.tally)
            balances = partial(self.job.balances, self.plan, counts)
            finish(self.prepared.storage, self.plan, counts, self.job.schemas, balances, put)
            if self.job.is_run:
                put_latest(self.prepared)
        except BaseException as error:
            if not self.lease.lost():  # else run.json belongs to another driver
                with contextlib.suppress(OSError, ClusterError):  # the first error is reported
                    self.record.put(outcome(error), self.plan, self.tally)
            raise

    def work(self) -> None:
        """Streams the pending shards through the stages; raises Stopped unless all are committed within the limits."""
        self._reopen()
        pending, state, spending = self._pending, self.progress.state, self.spending
        show_committed(state, self.plan, self.tally)
        self.watch.still(self.tally.counts, self.tally.spent)
        if (stop := self._limit()) is not None:
            raise stop
        if not pending:
            return
        if state.done:
            event("resume", f"resuming: {state.shards} of {state.planned} shards are committed", committed=state.shards)
        self.progress.phase(STARTING)
        runner = self._runner(len(pending))
        spending.renew(self.tally)  # this runner grants anew
        tracker = runner.tracker
        tracker.spent_elsewhere(spending.elsewhere(self.tally.spent))
        results = stream(runner, pending)
        self.signals.working = True
        try:
            stopped = self._collect(tracker, results)
        finally:  # a stop that waits for nothing: the lease is not given back before the work ends
            runner.drop()
        self.outages.end()
        self.watch.last(tracker)
        self._check_complete(stopped)

    def _reopen(self) -> None:
        """Reopens shards in which queries failed as a server did not answer, where only these exceed `limits.error_rate`."""
        counts, rate, whole = self.tally.counts, self.prepared.config.limits.error_rate, not self._pending
        failed, away = counts["failed_queries"], counts[FAILED_BY_OUTAGES]
        over, without = (too_many(of, counts["queries"], rate, whole=whole) for of in (failed, failed - away))
        if not over or without:
            return
        storage = self.prepared.storage
        shards = [one.shard for one in manifests(storage) if one.counts.get(FAILED_BY_OUTAGES)]
        number = f"{len(shards):,} of {len(self.plan.shards):,}"
        event("resume", f"repeated, as no server answered for {queries(away)} of them: shards {number}", shards=shards)
        reopen(storage, shards)
        self.tally = tally_of(storage)

    @property
    def _pending(self) -> list[Shard]:
        return [shard for shard in self.plan.shards if shard.number not in self.tally.shards]

    def _runner(self, shards: int) -> Runner:
        start, budget = self.lease.number, self.prepared.config.limits.max_cost_usd
        chain = self.job.stages(self.session.pools, start, self.job.open_store())
        self.watch.costed_as = {stage.name: stage.cost_stage or stage.name for stage in chain}
        if isinstance(self.session, InProcessSession):
            return LocalRunner(chain, start, shards, budget)
        return RayRunner(chain, start, shards, budget, exporter_of(self.prepared))

    def _collect(self, tracker: ProgressTracker, results: Results) -> Stopped | None:
        """Counts commits until all shards are committed, or, with the gate closed, until none is in flight."""
        stop: Stopped | None = None
        closing, retries = False, 0
        stall = Stall(tracker, self.prepared.config.limits.stall_minutes, self.resume_command)
        while (row := next_result(results)) is not None:
            if row:
                stall.restart()
                manifest = read_manifest(row["manifest"])
                self.tally.add(manifest)
                log_commit(manifest, len(self.tally.shards), len(self.plan.shards))
                add_traffic(json.loads(row["traffic"]))
            elif closing and not tracker.in_flight():
                break  # the other shards would pass through the stages empty
            if stop is None and (stop := self._limit()) is not None:
                event("limit", str(stop), logging.WARNING)
                self.progress.phase("stopping")
            if not closing and self.signals.received is not None:
                message = f"signal {self.signals.received}: no more shards are admitted; {self._in_flight(tracker)}"
                event("interrupt", message, logging.WARNING, signal=self.signals.received)
            if closing := stop is not None or self.signals.received is not None:
                tracker.close()
                self.progress.state.stopping = self._in_flight(tracker)
                self.signals.check_grace(self._left(tracker))
            if row:
                tracker.mark_committed(row["shard"])  # frees a place at the gate, unless it is closed
            self._show(tracker, bool(row))
            if self.spending.limited:
                tracker.spent_elsewhere(self.spending.elsewhere(self.watch.spent))
            self.outages.update("workers", self.watch.snapshot.outages)
            for stage, shard, attempt in self.watch.snapshot.retries[retries:]:
                message = f"shard {shard} restarts in stage {stage}, attempt {attempt}: its worker is gone"
                event("retry", message, logging.WARNING, stage=stage, shard=shard, attempt=attempt)
            retries = len(self.watch.snapshot.retries)
            self._check_lease()
            stall.check()
        return stop

    def _in_flight(self, tracker: ProgressTracker) -> str:
        end = "" if self.signals.received is None else "; a second signal ends at once"
        return f"{self._left(tracker)} being committed{end}"

    def _left(self, tracker: ProgressTracker) -> str:
        shards, rows = tracker.in_flight(), tracker.progress().queries
        return f"{shards} shard{'s' * (shards != 1)} in flight ({queries(rows)}) {'is' if shards == 1 else 'are'}"

    def _show(self, tracker: ProgressTracker, committed: bool) -> None:
        state = self.progress.state
        show_committed(state, self.plan, self.tally)
        if committed and not state.began:
            state.began, state.before = time.monotonic(), state.done
        self.watch.look(tracker, self.tally.counts, self.tally.spent)
        if state.began and not state.marks and state.stages:
            state.marked, state.marks = time.monotonic(), {stage.name: stage.done for stage in state.stages}
        if state.phase == STARTING and (committed or any(stage.at_work for stage in state.stages)):
            state.phase = "working"
        self.progress.tick()

    def _check_lease(self) -> None:
        if not self.lease.lost():
            return
        problem = (
            f"may have taken this run over, as nothing was stored for {STALE_SECONDS:g} s; resume with: {self.resume_command}"
        )
        if self.lease.taken_over:
            problem = "has taken over this run; let it finish"
        raise Stopped("run-held", f"{self.prepared.storage.root}: another driver {problem}", graceful=False)

    def _check_complete(self, stop: Stopped | None) -> None:
        """Raises Stopped unless every shard is committed and no limit is exceeded; the message tells the state now."""
        committed, planned = len(self.tally.shards), len(self.plan.shards)
        self.watch.still(self.tally.counts, self.spending.total(self.tally))
        if self.signals.received is not None and committed < planned:
            raise Stopped(
                "interrupted",
                f"interrupted: {committed} of {planned} shards are committed{covered_words(self.plan, self.tally.counts)}; "
                f"resume with: {self.resume_command}",
                128 + self.signals.received,
            )
        if last := self._limit():
            raise last
        if stop and committed < planned:
            raise stop
        if committed < planned:
            left = planned - committed
            problem = f"{left} of {planned} shards did not finish; resume with: {self.resume_command}"
            raise Stopped("stopped-failure", problem, graceful=False)

    def _limit(self) -> Stopped | None:
        watch, total = self.watch, max(1, self.plan.counts["queries"])
        asked = [costs.stage_sums(watch.spent, stage) for stage in ASKING]
        requests = sum(one.get("requests", 0) + one.get("reused", 0) for one in asked)
        paid = min(1.0, requests / (total * self.most_requests)) if self.most_requests else watch.judged / total
        return limit(self.prepared, self.plan, self.tally, watch, paid, self.resume_command)
