"""Measures: which of ir_measures' an ablation can be compared by, how deep they read a list, and what else is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cluster.errors import ConfigError, nearest
from jobs.log.judgements import MAX_GRADE, Judgements, read_qrels
from jobs.terminal.formats import and_more

if TYPE_CHECKING:
    import ir_measures

    from jobs.config.config import Config

WHOLE = 1000  # documents of a list that a measure without a cutoff reads: as many as TREC's ad hoc run files have
EXPONENTIAL_GRADE = 4  # gdeval.pl, by which ir_measures computes ERR and nDCG with gains 2**grade - 1, ends at a higher one
ANSWER_MEASURES = ("F1", "EM")  # of answers, by gold answers
_WHERE = "evaluate.measures"
_FORMS = "write it as nDCG@10, RR(rel=2)@10 or AP"
_BOUNDS = {"cutoff": (1, 1_000_000), "rel": (1, MAX_GRADE), "max_rel": (1, MAX_GRADE), "recall": (0, 1), "p": (0, 1)}
_SUBTOPICS = ("ERR_IA", "nERR_IA", "alpha_DCG", "alpha_nDCG", "NRBP", "nNRBP", "AP_IA", "P_IA", "StRecall")
_REFUSED = dict.fromkeys(_SUBTOPICS, "it needs judgements by subtopic, which have a column of their own")
_REFUSED["Accuracy"] = "it has no value for a list without a relevant document, or with relevant ones only"


def check_measures(names: Sequence[str]) -> tuple[str, ...]:
    """Returns measures, as the config has them, as ir_measures prints them: `MAP@100` is AP@100.

    Raises:
        ConfigError: ir_measures does not know one, cannot compute it with the installed packages, or one is listed twice; or
            it has a wrong parameter, or no value for some queries.
    """
    printed: dict[str, str] = {}
    for name in names:
        shown = str(_parsed(name))
        if shown in printed:
            again = "" if printed[shown] == name == shown else f" ({printed[shown]} and {name} are {shown})"
            raise ConfigError("config-value", f"{_WHERE}: {shown} is listed twice{again}; keep one")
        printed[shown] = name
    return tuple(printed)


def check_baseline(name: str, arms: Iterable[str]) -> None:
    """Checks that `evaluate.baseline` names an arm."""
    names = list(arms)
    if name not in names:
        what = f"evaluate.baseline: {name!r} is no arm{nearest(name, names)}; set evaluate.baseline to one of them"
        raise ConfigError("config-value", what)


def judged_measures(config: Config) -> tuple[str, ...]:
    """Returns the measures by a judge's grades, as deep as it judged: of a list, the share that is relevant, whether any is."""
    settings = None if config.judge is None else config.judge.relevance
    assert settings is not None, "the results are not judged"
    depth, relevant = settings.documents, settings.relevant
    rel = f"(rel={relevant})" if relevant > 1 else ""
    return f"nDCG@{depth}", f"P{rel}@{depth}", f"Success{rel}@{depth}"


def depths(names: Sequence[str]) -> tuple[int, ...]:
    """Returns the deepest rank that each measure reads; without a cutoff (RR, AP, Rprec, Bpref, Judged) it is `WHOLE`."""
    return tuple(int(_parsed(name).params.get("cutoff", WHOLE)) for name in names)


def deepest_rank(names: Sequence[str]) -> int:
    """Returns the deepest rank that one of the measures reads."""
    return max(depths(names))


def deeper(config: Config, names: Sequence[str], reach: int, *, is_run: bool) -> str:
    """Returns the remedy for measures of one depth that read deeper than `reach` documents, to which no list was cut.

    Lists of a run (`is_run`) end with the results; those of an ablation go on behind them, if `duplicates` is not `drop`.
    """
    reads = deepest_rank(names)
    depths = {"retrieve.depth": config.retrieve.depth, "fuse.depth": config.fuse.depth}
    depths |= {"fuse.keep": config.fuse.keep} if is_run or config.fuse.keep == reach else {}
    depths |= {"rerank.keep": config.rerank.keep} if is_run and config.rerank.kind != "none" else {}
    depths |= {} if is_run else {"ablate.keep": config.ablate.keep or deepest_rank(config.evaluate.measures)}
    keys = [f"{key} ({depth:,})" for key, depth in depths.items() if depth < reads]
    less = ", ".join(
        str(measure @ reach) if "cutoff" in measure.SUPPORTED_PARAMS else f"nDCG@{reach} in place of {measure}"
        for measure in map(_parsed, names)
    )
    return f"raise {', '.join(keys) or 'the depths of arms, strategies and retrievers'} to {reads:,}, or measure {less}"


def shallow_measures(config: Config, reach: Mapping[str, int], *, is_run: bool) -> Iterator[str]:
    """Yields a warning of measures that read deeper than lists are sure to reach: where lists end above, they have no value.

    `reach`: arm -> the fewest documents of a list from which something may have been cut off. Without judgements there is none.
    """
    names = check_measures(config.evaluate.measures) if config.evaluate.qrels else ()
    for reads in sorted({*depths(names)}):
        if arms := [arm for arm, least in reach.items() if least < reads]:
            mine, least = [name for name in names if depths([name]) == (reads,)], min(reach.values())
            ends = f"lists may end at {least:,} ({and_more(arms)}), and then it has no value"
            remedy = deeper(config, mine, least, is_run=is_run)
            yield f"{_WHERE}: {', '.join(mine)}: reads {reads:,} documents, {ends}; {remedy}"


def check_grades(names: Sequence[str], judgements: Judgements) -> None:
    """Checks the grades of judgements against what the measures can be computed for."""
    exponential = [
        name for name in names if (measure := _parsed(name)).NAME == "ERR" or measure.params.get("dcg") == "exp-log2"
    ]
    highest = max((grade for grades in judgements.grades.values() for grade in grades.values()), default=0)
    if exponential and highest > EXPONENTIAL_GRADE:
        raise ConfigError(
            "config-value",
            f"{_WHERE}: {exponential[0]} takes grades up to {EXPONENTIAL_GRADE}, {judgements.path} has {highest}; "
            "leave the measure out, or give smaller grades",
        )


def named_judgements(config: Config) -> Judgements | None:
    """Returns the judgements that a config names, if its measures can be computed by them; None if it names none."""
    settings = config.evaluate
    if not settings.qrels:
        return None
    judgements = read_qrels(settings.qrels, key=settings.key)
    check_grades(check_measures(settings.measures), judgements)
    return judgements


def _parsed(name: str) -> ir_measures.Measure:
    """Returns a measure that an installed package computes for every query."""
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name)
    except NameError as error:
        wrong, (_, at, cutoff) = str(error).removeprefix("measure not found: "), name.partition("@")
        known = [each for each in ir_measures.measures.registry.values() if each.NAME not in _REFUSED]
        like = dict.fromkeys(f"{one.NAME}{at}{cutoff}" if "cutoff" in one.SUPPORTED_PARAMS else one.NAME for one in known)
        raise ConfigError("config-value", f"{_WHERE}: ir_measures knows no {wrong[:80]!r}{nearest(wrong, [*like])}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError("config-value", f"{_WHERE}: {name[:80]!r} is not a measure; {_FORMS}") from error
    for fault in _faults(measure):
        raise ConfigError("config-value", f"{_WHERE}: {name[:80]}: {fault}")
    return measure


def _faults(measure: ir_measures.Measure) -> Iterator[str]:
    """Yields faults of a measure with their remedies; none of one that can be computed for every query."""
    import ir_measures

    if measure.NAME in _REFUSED:
        yield f"{_REFUSED[measure.NAME]}; choose another measure"
    needed = {key: one for key, one in measure.SUPPORTED_PARAMS.items() if one.required}
    for key in needed.keys() - measure.params.keys():
        written = f"@{0.5 if needed[key].dtype is float else 10}" if key == measure.AT_PARAM else f"({key}=1)"
        yield f"it needs a {key}; write {measure.NAME}{written}"
    try:
        measure.validate_params()
    except AssertionError as error:
        yield f"{error}; {_FORMS}"
    for key, (low, high) in _BOUNDS.items():
        value = measure.params.get(key, low)
        if value is True or not low <= value <= high:
            yield f"{key} cannot be {value!r}; give a number from {low} to {high:,}"
    gains = measure.params.get("gains", {})
    # trec_eval ends the process on a negative gain and keeps a counter for every gain up to the highest
    if not all(isinstance(gain, int) and 0 <= gain <= MAX_GRADE for gain in gains.values()):
        yield f"gains cannot be {gains!r}; give whole numbers from 0 to {MAX_GRADE:,}, like {{0:0,1:1,2:3}}"
    computing = [one for one in ir_measures.DefaultPipeline.providers if one.supports(measure)]
    if any(one.is_available() for one in computing):
        return
    missing = " or ".join(" ".join(instructions.split()) for one in computing if (instructions := one.install_instructions()))
    yield f"no installed package computes it; {missing or 'add a cutoff or rel, or leave a parameter out'}"
