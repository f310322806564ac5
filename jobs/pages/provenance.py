"""The results of a trial, each beside a matrix of its ranks: strategies by retrievers."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from jobs.tables import ORIGINAL
from jobs.terminal.formats import one_line, shortened
from jobs.try_one.trial import Row, Trial
from retrievers.corpora.collections import id_parts
from retrievers.lists import TOGETHER

SHOWN_RESULTS = 10
NOT_THERE = "·"
_TEXT = 160  # characters of a document, at most
_SHARE = 0.55  # of the width that the matrix may take with the strategies side by side


class Results:
    """The first results; strategies are the rows of the matrix, or its columns where the terminal is wide enough.

    The ranks of several texts of a strategy stand side by side.
    """

    def __init__(self, trial: Trial) -> None:
        """Takes the trial."""
        self._trial = trial
        self._positions: dict[str, list[int]] = {}  # strategy -> of its texts; a line for each would fill pages
        for strategy, position in dict.fromkeys((one["strategy"], one["position"]) for one in trial.row["lists"]):
            self._positions.setdefault(strategy, []).append(position)
        self._retrievers = list(trial.config.retrieve.retrievers)
        self._of = trial.config.retrieve.collection_of  # a retriever of another collection has no such document
        self._known_original = TOGETHER not in self._positions
        self._searched = {(one["strategy"], one["position"], one["retriever"]) for one in trial.row["lists"]}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields a table with a row per result."""
        names = list(self._positions)
        widths = {name: 3 * len(positions) - 1 for name, positions in self._positions.items()}
        across = max(map(len, self._retrievers)) + sum(2 + max(len(name), widths[name]) for name in names)
        wide = across <= _SHARE * options.max_width
        rows, columns = (self._retrievers, names) if wide else (names, self._retrievers)
        table = Table(box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("", ratio=1, overflow="fold")
        table.add_column("", no_wrap=True, style="dim")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        taken = across if wide else max(map(len, names)) + len(columns) * (2 + max(4, *widths.values(), *map(len, columns)))
        room = max(20, options.max_width - taken - 8) * max(2, len(rows) - 1) * 9 // 10  # lines break between words
        for rank, hit in enumerate(self._trial.row["hits"][:SHOWN_RESULTS], start=1):
            ranks = {(one["strategy"], one["position"], one["retriever"]): str(one["rank"]) for one in hit["sources"]}
            collection = id_parts(hit["doc_id"])[0]
            cells = [
                [
                    self._cell(ranks, strategy, name) if self._of.get(name, collection) == collection else ""
                    for strategy in names
                ]
                for name in self._retrievers
            ]
            lines = [list(line) for line in zip(*cells, strict=True)] if wide else cells
            matrix = [Text("\n".join(line), style="") for line in lines]
            table.add_row(str(rank), self._document(hit, min(_TEXT, room)), "\n".join(rows), *matrix)
        yield table

    def _cell(self, ranks: dict[tuple[str, int, str], str], strategy: str, retriever: str) -> str:
        """Returns the ranks in the lists of a strategy's texts, in order of position."""
        lists = [(strategy, position, retriever) for position in self._positions[strategy]]
        return " ".join(ranks.get(one, NOT_THERE) for one in lists if one in self._searched)

    def _document(self, hit: Row, length: int) -> Text:
        trial = self._trial
        words = Text.assemble((one_line(hit["doc_id"]), "bold"), f"  {hit['score']:.4f}")
        if trial.config.rerank.kind != "none":
            words.append(f"  fused {fused_ranks(trial.row)[hit['doc_id']]}", "dim")
        if self._known_original and ORIGINAL not in {source["strategy"] for source in hit["sources"]}:
            words.append("\nnot found by the original", "yellow")
        if address := trial.addresses.get(hit["doc_id"]) or trial.places.get(hit["doc_id"]):
            words.append(f"\n{shortened(one_line(address), length)}", "cyan")
        return words.append("\n" + shortened(one_line(trial.texts[hit["doc_id"]]), length), "dim")


def fused_ranks(row: Row) -> dict[str, int]:
    """Returns doc_id -> rank after fusion, of the candidates."""
    return {candidate["doc_id"]: rank for rank, candidate in enumerate(row["candidates"], start=1)}
