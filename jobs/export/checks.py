"""Checks of a version before it is made current: error rate, coverage of the traffic, quality."""

from typing import NamedTuple

from cluster.errors import ConfigError
from jobs.config.settings import PublishSettings
from jobs.export.versions import Version
from jobs.log.judgements import Judgements
from jobs.measure.frame import measure
from jobs.measure.significance import TIE
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import figure, percent


class Check(NamedTuple):
    """Result of one check."""

    name: str  # the key of `publish`
    passed: bool  # whether the bound holds; also where none is set, or nothing can be measured
    figure: float | None  # the measured value; None: nothing was measured
    text: str  # value and bound in words


def checks(run: RunFolder, version: Version, settings: PublishSettings, judgements: Judgements | None) -> list[Check]:
    """Returns the checks of a version: error rate, coverage, and quality by `judgements`, where there are some.

    Rejected rows of the log are traffic without a row: as often as they were asked, where the plan knows it, else once each.
    """
    queries, failed = run.counts.get("queries", 0), run.counts.get("failed_queries", 0)
    failing = f"of the queries failed ({failed:,} of {queries:,})"
    planned, served = run.plan.counts, version.counts["served_traffic"]
    traffic = version.counts["traffic"] + planned.get("rejected_traffic", planned.get("rejected", 0))
    covered = f"of the log's traffic has rewrites or documents ({served:,} of {traffic:,})"
    return [
        _bounded("error_rate", failed, queries, settings.error_rate, failing, most=True),
        _bounded("coverage", served, traffic, settings.coverage, covered, most=False),
        _quality(run, settings.quality_loss, judgements),
    ]


def _bounded(name: str, part: int, whole: int, bound: float | None, text: str, *, most: bool) -> Check:
    share = part / whole if whole else 0.0
    text = f"{percent(share)} {text}"
    if bound is None:
        return Check(name, True, share, f"{text}, no bound")
    passed = share <= bound if most else share >= bound
    return Check(name, passed, share, f"{text}, at {'most' if most else 'least'} {percent(bound)}")


def _quality(run: RunFolder, bound: float | None, judgements: Judgements | None) -> Check:
    name = "quality_loss"
    if bound is None or judgements is None:
        return Check(name, True, None, "quality has no bound" if bound is None else "there are no judgements")
    measured = judgements.measures(run.config.evaluate.measures)[0]
    frame = measure(run, judgements, [measured])
    if not frame.keys:
        return Check(name, False, None, "; ".join(frame.left_out) or f"no query of the log is judged in {judgements.path}")
    pair = frame.pairs(0, 1 if len(frame.arms) > 1 else None, bound)[measured]
    text = f"{measured} of the results is {figure(pair.b)} over {len(frame.keys):,} judged keys"
    if pair.a is None:
        why = "no list of it is graded" if judgements.judge is not None else "its own list was not kept"
        return Check(name, True, pair.b, f"{text}, not compared with the original alone: {why}")
    text += f", that of the original alone {figure(pair.a)}, at most {figure(bound)} more"
    text += f" ({pair.verdict})" if pair.verdict is not None else ""
    return Check(name, pair.b >= pair.a - bound - TIE, pair.b, text)


def not_promoted(version: Version, failed: list[Check]) -> ConfigError:
    """Returns the error of checks that failed; the pointer is unchanged."""
    texts = "; ".join(f"publish.{one.name}: {one.text}" for one in failed)
    remedy = f"look at the run, or set another bound (--set publish.{failed[0].name}=VALUE)"
    error = ConfigError("export", f"{texts}; {version.run_id} is exported and not promoted; {remedy}")
    error.exit_code = 1
    return error
