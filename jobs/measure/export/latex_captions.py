"""What captions of LaTeX tables say of the kind of measures and their keys, and how tables of one file are told apart."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.config.settings import TableSettings
from jobs.measure.compare.difference import DEVIATION, PART
from jobs.measure.export.latex_cells import SIGNS, chosen_measures, joined, known_arms, latex
from jobs.measure.frame import LISTS, Frame
from jobs.measure.notes import HEADINGS, TITLES

_KEYS = {"log_id": "log rows", "query_id": "queries", "query": "queries"}
_PAIRS = ("every two arms", "pairs")
_SIDE_BY_SIDE = ("all measures", "measures")


def means_over(frames: Sequence[Frame], counts: str = "") -> str:
    """Returns which measures the means of a table are of, over which keys, and what counts zero.

    Args:
        frames: of one kind, one or those of several sets.
        counts: names of the sets with their numbers of keys; nothing: there is one set.
    """
    one = frames[0]
    keys = joined(list(dict.fromkeys(_KEYS[frame.key] for frame in frames)))
    what = f"{keys} with gold answers" if one.gold else f"judged {keys}"
    over = f"the {what} of {counts}" if counts else f"{len(one.keys):,} {what}"
    means = "Means" if one.kind == LISTS else f"{TITLES[one.kind]}: means"
    return f"{means} over {over}; queries without {'an answer' if one.answers else 'results'} count zero"


def bounds_said(frame: Frame, names: Sequence[str]) -> str:
    """Returns which arms are bounds, by their names in LaTeX, and by what they choose."""
    return f"Upper bounds that choose by {'gold answers' if frame.gold else 'judgements'}: {joined(sorted(names))}"


def note_words(note: str) -> str:
    """Returns a note as LaTeX, with the sign before it, if it has one."""
    sign = next((sign for sign in (PART, DEVIATION) if note.startswith(sign)), "")
    return f"{SIGNS[sign]} {latex(note.removeprefix(sign).strip())}" if sign else latex(note)


def tables_of(
    table: TableSettings, kinds: Sequence[str], measured: Sequence[Sequence[str]], arms: Sequence[Sequence[str]]
) -> list[TableSettings | None]:
    """Returns the table of each comparison with those of the chosen measures and arms that it has; None: it has none of them.

    The first has the caption and the label; those of the others say which kind they are of.

    Args:
        table: chooses measures and arms, or takes all.
        kinds: of the frames of each comparison.
        measured: measures of each, as of lists and of answers.
        arms: of each; not every arm may have answers.

    Raises:
        ConfigError: one that is chosen is in no comparison.
    """
    chosen = chosen_measures(table, list(dict.fromkeys(name for names in measured for name in names)))
    found = [[name for name in chosen if table.measures and name in names] for names in measured]
    known_arms(table, list(dict.fromkeys(name for names in arms for name in names)))
    named = table.arms if isinstance(table.arms, dict) else {name: name for name in table.arms}
    tables: list[TableSettings | None] = []
    for kind, own, names in zip(kinds, found, arms, strict=True):
        rows = {name: shown for name, shown in named.items() if name in names}
        if (table.measures and not own) or (table.arms and not rows):
            tables.append(None)
            continue
        other = _apart(table, HEADINGS[kind], kind) if any(tables) else table
        tables.append(other.model_copy(update={"measures": own, "arms": rows}))
    return tables


def table_of_pairs(table: TableSettings) -> TableSettings:
    """Returns the table of every two arms beside a table of means: by the same choices, with a caption and label of its own."""
    return _apart(table, *_PAIRS)


def table_side_by_side(table: TableSettings) -> TableSettings:
    """Returns the table of all measures side by side before tables of one kind each: with a caption and label of its own."""
    return _apart(table, *_SIDE_BY_SIDE)


def _apart(table: TableSettings, words: str, suffix: str) -> TableSettings:
    """Returns a table whose caption ends in these words and whose label ends in a suffix, where it has them."""
    caption = table.caption
    if caption is not None:
        stop = "." * caption.rstrip().endswith(".")
        caption = ": ".join(filter(None, [caption.rstrip().removesuffix("."), words])) + stop
    return table.model_copy(update={"caption": caption, "label": f"{table.label}-{suffix}" if table.label else table.label})
