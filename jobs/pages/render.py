"""The one renderer: a page is sections of tables, charts, texts and queries, and a table prints into a terminal, too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from markupsafe import Markup
from rich import table as rich_table
from rich.text import Text

from cluster.storage import remote, written
from jobs.pages.charts import Axis, axis
from jobs.runs.folder import REPORT
from jobs.terminal.formats import figure, percent, plain, printable, shown

if TYPE_CHECKING:
    import jinja2

    from jobs.pages.samples import Sample

NARROW = 7  # columns of a table from which they stand closer in a terminal


class Interval(NamedTuple):
    """A mean difference with the ends of its 95 % interval; NaN where these are not known."""

    low: float
    high: float
    at: float


difference = partial(figure, sign="+")  # returns a difference like '+0.0752'


def interval(value: Interval) -> str:
    """Returns '+0.0012 to +0.0345', drawn in a page."""
    return f"{figure(value.low, '+')} to {figure(value.high, '+')}"


class Head(NamedTuple):
    """A column: its label with the unit, and the format of its values: texts are aligned to the left, `percent` has a bar."""

    label: str
    show: Callable[[Any], str] = str

    @property
    def is_text(self) -> bool:
        return self.show is str

    def text(self, value: Any) -> str:
        """Returns a value as shown: texts unchanged, '-' for unknown values."""
        if value is None or value == "" or any(isinstance(of, float) and math.isnan(of) for of in (value, *_ends(value))):
            return "" if value == "" else "-"
        return value if isinstance(value, str) else self.show(value)


class Cell(NamedTuple):
    """A cell of a page: text, drawing, label of its column, and classes of the style sheet."""

    text: str
    drawn: Markup
    label: str
    kind: str


@dataclass(frozen=True)
class Table:
    """Columns and rows of values; the first column names the row, with two blanks before a part of the row above."""

    columns: Sequence[Head]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    note: str = ""
    strong: Collection[str] = ()  # first cells of the rows that stand out

    @property
    def has_head(self) -> bool:
        return any(column.label for column in self.columns)

    def terminal(self, least: int = 0, first: int | None = None) -> rich_table.Table:
        """Returns it for a terminal, at least `least` characters wide; names of the first column break after + at `first`."""
        space = 1 if len(self.columns) >= NARROW else 2
        table = rich_table.Table(
            box=None, padding=(0, space, 0, 0), min_width=least or None, show_header=self.has_head, header_style="bold",
            caption=Text(printable(self.note)) if self.note else None, caption_justify="left", caption_style="",
        )  # fmt: skip
        for number, column in enumerate(self.columns):
            options: dict[str, Any] = {"justify": "left" if column.is_text else "right", "overflow": "fold"}
            options |= {} if number else {"style": "bold", "max_width": first, "ratio": 1 if least else None}
            label = column.label if number or not self.title else self.title
            table.add_column(Text(plain(label)), no_wrap=not column.is_text, **options)
        for row in self.rows:
            texts = [printable(column.text(value)) for column, value in zip(self.columns, row, strict=True)]
            texts[0] = "\n".join(re.findall(rf".{{1,{first}}}(?:(?<=[+ ])|$)|.{{1,{first}}}", texts[0])) if first else texts[0]
            table.add_row(*map(Text, texts))
        return table

    def known(self) -> Table:
        """Returns it without the columns of which nothing is known."""
        kept = [n for n in range(len(self.columns)) if not self.rows or not n or any(row[n] is not None for row in self.rows)]
        rows = [[row[n] for n in kept] for row in self.rows]
        return replace(self, columns=[self.columns[n] for n in kept], rows=rows)

    def cells(self) -> Iterator[tuple[str, list[Cell]]]:
        """Yields the rows of a page: a class of the style sheet, and the cells."""
        axes: list[Axis | None] = []
        for number, column in enumerate(self.columns):
            ends = [end for row in self.rows for end in _ends(row[number]) if math.isfinite(end)]
            axes.append(axis(ends, 0.0, 100.0, zero=True) if ends and column.show is interval else None)
        for row in self.rows:
            first = str(row[0])
            kind = "part" if first.startswith("  ") else "strong" if first in self.strong else ""
            cells = []
            for column, value, axis_of_column in zip(self.columns, row, axes, strict=True):
                text = column.text(value)
                text = text if column.is_text else text.replace("-", "−") if text != "-" else "–"
                kinds = " ".join(filter(None, ["text" * column.is_text, "none" * (not text)]))
                cells.append(Cell(text, _drawn(column, value, axis_of_column), column.label, kinds))
            yield kind, cells


def _ends(value: Any) -> Sequence[float]:
    return value if isinstance(value, Interval) else ()


def _drawn(column: Head, value: Any, axis: Axis | None) -> Markup:
    """Returns the drawing of a cell: an interval on the axis of its column, or the bar of a share; else nothing."""
    if column.show is percent and isinstance(value, float):
        return Markup('<i class="bar"><i style="width:{:.2f}%"></i></i>').format(100 * min(1.0, value))
    if axis is None or not isinstance(value, Interval) or not math.isfinite(value.low):
        return Markup("")
    low, high, at = (axis.position(end) for end in value)
    reach = '<i class="interval"><i class="zero" style="left:{:.2f}%"></i>'
    reach += '<i class="reach" style="left:{:.2f}%;right:{:.2f}%"></i><i class="dot" style="left:{:.2f}%"></i></i>'
    return Markup(reach).format(axis.position(0.0), low, 100 - high, at)


class Tile(NamedTuple):
    """A key figure: its label, its value with the unit, a detail, and a class of the style sheet: good, bad or none."""

    label: str
    value: str
    detail: str = ""
    state: str = ""


class Tiles(NamedTuple):
    """Key figures side by side."""

    tiles: Sequence[Tile]


class Notes(NamedTuple):
    """Sentences; `warns`: what went wrong."""

    sentences: Sequence[str]
    warns: bool = False


class Chart(NamedTuple):
    """A drawing with its title and a legend: class of the style sheet -> words."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str]] = ()


class Code(NamedTuple):
    """A folded text, such as a config."""

    title: str
    text: str


Part: TypeAlias = "Table | Tiles | Notes | Chart | Code | Sample"


@dataclass(frozen=True)
class Section:
    """A part of a page: what it says in a sentence, and by what; `folded` ones are opened by a click."""

    id: str
    title: str
    sentence: str = ""
    parts: Sequence[Part] = ()
    folded: bool = False


def render(kind: str, title: str, facts: Sequence[str], state: str, sections: Sequence[Section | None], *, texts: bool) -> str:
    """Returns a self-contained page without a script."""
    shown_sections = [section for section in sections if section is not None]
    page = _environment().get_template("page.html.j2")
    html = page.render(kind=kind, title=title, facts=facts, state=state, sections=shown_sections, texts=texts)
    return html.encode("utf-8", "backslashreplace").decode()


def write_page(out: str, html: str) -> None:
    """Writes a page to a file or an object on S3, which has the report's usual name below a prefix."""
    with written(out + REPORT if remote(out) and out.endswith("/") else out) as file:
        file.write_text(html, encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jobs.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.filters["kind"] = lambda part: type(part).__name__.lower()
    return environment
