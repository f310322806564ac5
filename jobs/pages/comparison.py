"""The tables of a measured run and of compared arms, on a terminal and on pages, and their values for JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers, answer_frames
from jobs.measure.comparison import Comparison
from jobs.measure.evaluate import Evaluation, answer_notes, answers_values, evaluate
from jobs.measure.frame import ANSWERS, JUDGED_LISTS, LISTS, Frame, Pair
from jobs.measure.join import Joined, JoinedArm
from jobs.measure.measures import title
from jobs.measure.notes import EXPLAINED, HEADINGS, INTERVAL, table_notes
from jobs.measure.significance import ALPHA, SIGNS
from jobs.pages.render import Head, Interval, Table, difference, interval
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL
from jobs.terminal.formats import count, figure, known, p_words, printable

MOST_ARMS = 20  # rows of the tables in a terminal; the baseline and `full` are always among them
MOST_MEASURES = 5  # columns of the second table there
MOST_SETS = 4  # columns of joined ablations; --json has all sets
WIDTH, ARM_WIDTH = 76, 20  # characters in a terminal: of a table at least, of its names at most
NAMES = {"answers": ANSWERS, "judged_results": JUDGED_LISTS}  # of values -> kind of frame, beside the judged answers


@dataclass(frozen=True)
class MeasuredRun:
    """The quality of a run's results and answers, as far as they were measured."""

    lists: Evaluation | None = None
    answers: Sequence[Frame] = ()
    judgements: Judgements | None = None

    @property
    def frame(self) -> Frame | None:
        """Returns the judged keys of the lists."""
        return None if self.lists is None else self.lists.frame

    @property
    def known(self) -> Evaluation | None:
        """Returns the quality of the results, if at least one query counts."""
        return self.lists if self.lists is not None and self.lists.frame.keys else None

    @property
    def leading(self) -> str:
        """Returns the first measure, beside that of the original alone; empty: not measured."""
        if self.known is None:
            return ""
        name, pair = next(iter(self.known.pairs.items()))
        return f"{name} of run {figure(pair.b)}" + ("" if pair.a is None else f", of {ORIGINAL} {figure(pair.a)}")

    @property
    def frames(self) -> list[Frame]:
        return [*([] if self.frame is None else [self.frame]), *self.answers]

    @property
    def warnings(self) -> list[str]:
        """Returns the reason why something was not measured."""
        return [frame.warning for frame in self.frames if frame.warning is not None]

    def tables(self, *, wide: bool) -> Iterator[tuple[Table | None, list[str]]]:
        """Yields the table of the lists and those of the answers, each with its notes; None where nothing was measured.

        `wide`: with words where a terminal has signs.
        """
        first = Head("measure" if wide else "")
        if self.lists is not None:
            columns = [first, Head("results", figure), Head(self.lists.alone.replace(", ", ",\n", 1), figure)]
            columns += [Head("difference", difference), Head(INTERVAL, interval), Head("verdict" if wide else "")]
            rows = []
            for name, pair in self.lists.pairs.items():
                verdict = (pair.verdict or "") if wide else SIGNS.get(pair.verdict, "")
                rows.append([title(name), pair.b, pair.a, pair.difference, drawn(pair), verdict])
            notes = self.lists.notes + table_notes(self.lists.pairs, self.lists.config.evaluate.margin)
            yield None if self.known is None else Table(columns, rows), notes
        for frame in self.answers:
            if frame.warning is not None:
                yield None, [f"warning: {HEADINGS[frame.kind]}: {frame.warning}"]
                continue
            columns = [first, Head("answers", figure), Head(INTERVAL, str.strip)]
            rows = [[name, mean, " to ".join(map(figure, ends or ())) or None] for name, (mean, ends) in frame.means.items()]
            yield Table(columns, rows, HEADINGS[frame.kind]), [*[EXPLAINED[frame.kind]] * wide, *answer_notes(frame)]

    def page(self) -> RenderableType:
        parts: list[RenderableType] = []
        for table, notes in self.tables(wide=False):
            parts += [""] * bool(parts)
            parts += [Text("\n".join(notes))] if table is None else [table.terminal(WIDTH), "", Text("\n".join(notes))]
        return Group(*parts)

    def values(self) -> dict[str, Any]:
        return ({} if self.lists is None else self.lists.values()) | answers_values(self.answers)

    @cached_property
    def grades(self) -> dict[str, dict[str, int]]:
        """Returns query_id -> doc_id -> grade, the highest of the query's judgements."""
        grades: dict[str, dict[str, int]] = {}
        if self.frame is not None and self.judgements is not None:
            for key, query_id in zip(self.frame.keys, self.frame.query_ids, strict=True):
                if query_id is not None:
                    own = grades.setdefault(query_id, {})
                    for doc_id, grade in self.judgements.grades[key].items():
                        own[doc_id] = max(grade, own.get(doc_id, grade))
        return grades

    @cached_property
    def by_query(self) -> dict[str, tuple[float, float | None]]:
        """Returns query_id -> the leading measure of its results and of the original alone (None: not measured)."""
        if self.frame is None:
            return {}
        first = self.frame.by_query[:, 0].tolist()
        alone = first[1] if len(first) > 1 else [None] * self.frame.distinct
        return dict(zip(self.grades, zip(first[0], alone, strict=True), strict=False))  # rejected rows stand behind the queries

    @property
    def gains(self) -> list[tuple[str, float]]:
        """Returns (query_id, gain over the original alone), the greatest gain first; empty where it was not measured."""
        gains = [(name, round(results - alone, 9)) for name, (results, alone) in self.by_query.items() if alone is not None]
        return sorted(gains, key=lambda one: (-one[1], one[0]))


UNMEASURED = MeasuredRun()


def measured_run(
    run: RunFolder, judgements: Judgements | None, gold: GoldAnswers | None, measures: Sequence[str] | None = None
) -> MeasuredRun:
    """Measures a run by its config's measures or these."""
    lists = None if judgements is None else evaluate(run, judgements, measures)
    return MeasuredRun(lists, answer_frames(run, gold), judgements)


class Comparisons(NamedTuple):
    """The arms of an ablation, compared by their results and answers (`jobs.measure.comparison.comparisons`)."""

    every: Sequence[Comparison] = ()

    @property
    def lists(self) -> Comparison | None:
        return next((comparison for comparison in self.every if comparison.frame.kind == LISTS), None)

    @property
    def beside(self) -> list[Comparison]:
        return [comparison for comparison in self.every if comparison.frame.kind != LISTS]

    @property
    def frames(self) -> list[Frame]:
        return [comparison.frame for comparison in self.every]

    def page(self) -> RenderableType:
        """Returns the tables of the arms by their lists, and below, under lines of their own, those by their answers."""
        parts: list[RenderableType] = [] if self.lists is None else [comparison_table(self.lists)]
        for beside in self.beside:
            parts += [Text("\n" * bool(parts) + HEADINGS[beside.frame.kind], style="bold"), comparison_table(beside)]
        return Group(*parts)

    def values(self) -> dict[str, Any]:
        return ({} if self.lists is None else comparison_values(self.lists)) | self.values_beside()

    def values_beside(self) -> dict[str, Any]:
        """Returns `answers`, `judged_answers` and `judged_results`, as far as they were compared."""
        by_kind = {comparison.frame.kind: comparison_values(comparison) for comparison in self.beside}
        answers, results = ({name: by_kind.pop(kind)} if kind in by_kind else {} for name, kind in NAMES.items())
        return answers | ({"judged_answers": by_kind} if by_kind else {}) | results


def comparison_table(comparison: Comparison) -> RenderableType:
    """Returns the arms by the first measure, those by all measures, the slices, and the notes; only a warning for nothing."""
    if not comparison.differences:
        return Text(printable("\n".join(comparison.notes)))
    arms = comparison.main_arms(MOST_ARMS)
    tables = [arms_table(comparison, arms)]
    tables += [means_table(comparison, arms, MOST_MEASURES)] if len(comparison.frame.measures) > 1 else []
    tables += [slices_table(comparison)] if comparison.slices else []
    more = len(comparison.frame.arms) - len(arms)
    notes = [
        signs_note(comparison),
        *([f"{more:,} more arms are not shown: --json and per_query.parquet have them"] if more else []),
        *comparison.notes,
    ]
    parts = [part for table in tables for part in (table.terminal(WIDTH, ARM_WIDTH), "")]
    return Group(*parts, Text(printable("\n".join(notes))))


def signs_note(comparison: Comparison) -> str:
    """Returns the legend of the tables' marks."""
    return f"+ better, - worse than {comparison.baseline} (p or q < {ALPHA}), = equivalent"


def arms_table(comparison: Comparison, arms: Sequence[str], *, wide: bool = False) -> Table:
    """Returns arms by the first measure: mean, difference, interval, corrected p.

    `wide`: with verdicts in words and the number of queries that gained and lost, in place of signs.
    """
    first = comparison.frame.measures[0]
    grid = any(comparison.by_arm[arm, first].q is not None for arm in arms)
    last = [Head("verdict"), Head("queries gained / same / lost", count)] if wide else [Head("")]
    columns = [
        Head("arm" if wide else ""), Head(first, figure), Head("difference", difference),
        Head(INTERVAL, interval), Head("seen from", figure), Head("p or q" if grid else "p", p_words), *last,
    ]  # fmt: skip
    rows = []
    for arm in arms:
        tests, base = comparison.by_arm[arm, first], arm == comparison.baseline
        p = "bound" if arm in comparison.oracles else "same" if arm in comparison.untested else tests.corrected
        moved = "" if base else f"{tests.wins:,} / {tests.ties:,} / {tests.losses:,}"
        verdict = "" if base or isinstance(p, str) else tests.verdict_within(comparison.margin)
        rows.append([
            comparison.named(arm), tests.mean, "baseline" if base else tests.difference,
            None if base else Interval(tests.low, tests.high, tests.difference),
            "" if tests.detectable is None else tests.detectable, p, *([verdict, moved] if wide else [tests.signs]),
        ])  # fmt: skip
    return Table(columns, rows, strong=[comparison.named(comparison.baseline)])


def means_table(comparison: Comparison, arms: Sequence[str], most: int | None = None) -> Table:
    """Returns the means of arms by `most` measures, with the signs of their tests."""
    measures = comparison.frame.measures[:most]
    rows = []
    for arm in arms:
        tests = [comparison.by_arm[arm, name] for name in measures]
        rows.append([comparison.named(arm), *(f"{figure(test.mean)}{test.signs:1}" for test in tests)])
    rest = comparison.frame.measures[len(measures) :]
    note = f"{', '.join(rest)}: see --json and the report" if rest else ""
    strong = [comparison.named(comparison.baseline)]
    return Table([Head("arm"), *(Head(name, figure) for name in measures)], rows, "all measures", note, strong)


def slices_table(comparison: Comparison) -> Table:
    """Returns the first measure slice by slice: of `full`, or the best arm where that is none, and of its baseline."""
    base = comparison.baseline
    ranked = [arm for arm in comparison.main_arms(MOST_ARMS) if arm not in comparison.oracles | {base}]
    arm = "full" if "full" in ranked else (ranked or [base])[0]
    rows = [
        [
            f"{part.name}: {part.value}", f"{part.keys:,}{'?' if part.few else ' '}", part.means[base][0], part.means[arm][0],
            part.means[arm][1],
        ]
        for part in comparison.slices
    ]  # fmt: skip
    columns = [
        Head("slice"), Head("keys", count), Head(base, figure), Head(arm, figure), Head("difference", difference)
    ]  # fmt: skip
    note = "?: too few keys for the means to say much" if any(one.few for one in comparison.slices) else ""
    return Table(columns, rows, note=note)


def drawn(pair: Pair) -> Interval | None:
    """Returns the interval of a difference, where there is one."""
    return None if pair.interval is None or pair.difference is None else Interval(*pair.interval, pair.difference)


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Returns the comparison as JSON-able values; unknown ones are None."""
    frame = comparison.frame
    arms: list[dict[str, Any]] = []
    for index, (arm, record) in enumerate(comparison.arms.items()):
        measures = {name: asdict(comparison.by_arm[arm, name]) for name in (frame.measures if comparison.differences else ())}
        arms.append({
            "arm": arm,
            "family": record["family"],
            "oracle": arm in comparison.oracles,
            "reads_part_of": record.get("reads_part_of") or None,
            "same_as": record.get("same_as"),
            "also": record.get("also") or [],
            "failed": int(frame.failed[index]),
            "unjudged": float(frame.unjudged[index]),
            "measures": {
                name: {key: value for key, value in figures.items() if key not in {"arm", "measure"}}
                for name, figures in measures.items()
            },
        })  # fmt: skip
    values = {
        **({} if frame.judge is None else {"judged_by": frame.judge.model}),
        "baseline": comparison.baseline,
        "margin": comparison.margin,
        "measures": list(frame.measures),
        **{name: getattr(frame, name) for name in ("judged", "missing", "not_committed", "rejected", "depth", "key")},
        "counted": len(frame.keys),
        "clusters": frame.drawn,
        "arms": arms,
        "slices": [asdict(part) for part in comparison.slices],
        "notes": list(comparison.notes),
    }
    return cast(dict[str, Any], known(values))


def joined_tables(joined: Sequence[Joined]) -> RenderableType:
    """Returns a table of arms and sets for each measure, and the notes."""
    parts: list[RenderableType] = []
    for joined_set in joined:
        parts += [Text("\n" * bool(parts) + HEADINGS[joined_set.kind], style="bold")] if len(joined) > 1 else []
        tables = [_arms(joined_set, measure) for measure in joined_set.measures]
        parts += [table.terminal(WIDTH, ARM_WIDTH) for table in tables]
        families = f"p or q < {ALPHA}: of a set its own, of the mean that over sets"
        notes = [f"+ better, - worse than {joined_set.baseline} ({families})"]
        notes += [f"not all sets are shown: --json has all {len(joined_set.sets):,}"] * (len(joined_set.sets) > MOST_SETS)
        parts.append(Text(printable("\n".join([*notes, *joined_set.notes]))))
    return Group(*parts)


def _arms(joined: Joined, measure: str) -> Table:
    by_arm: dict[str, dict[str | None, JoinedArm]] = {}
    for row in joined.rows:
        if row.measure == measure:
            by_arm.setdefault(row.arm, {})[row.set] = row
    shown = [*list(joined.sets)[:MOST_SETS], None]
    rows = []
    for arm, by_set in sorted(by_arm.items(), key=lambda item: -item[1][None].mean):
        over, base = by_set[None], arm == joined.baseline
        means = [f"{figure(by_set[name].mean)}{'' if base else by_set[name].sign:1}" for name in shown]
        moved = ["baseline", None] if base else [over.difference, Interval(over.low, over.high, over.difference)]
        rows.append([arm, *means, *moved, over.corrected])
    columns = [Head("arm"), *(Head(name or "mean", figure) for name in shown), Head("difference", difference)]
    return Table([*columns, Head(INTERVAL, interval), Head("p or q", p_words)], rows, measure)
