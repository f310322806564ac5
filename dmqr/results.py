"""Results of verbs: values, which `--json` prints, and a page, which a terminal and a notebook show."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError, nearest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from cluster.prices import Prices
    from dmqr.quality import JoinedQuality, MeasuredQuality
    from jobs.config.config import Config
    from jobs.pages.ablation import ComparedArms
    from jobs.runs.folder import RunFolder

Folder = str | os.PathLike[str]
WIDTH = 100  # columns of a page where there is no terminal


def prices_of_run(folder: RunFolder, path: str | None = None) -> Prices | None:
    """Returns the prices of a file, by default of that beside the config of the run; None if there are none."""
    from jobs.measure.run_list import prices_of

    return prices_of(path, None)(folder.record)


class Result:
    """The result of a verb."""

    code = 0
    """The exit code of the command line."""
    failure = ""
    """The line with which the command line ends, where the code is not 0."""

    def __init__(
        self, values: Any = None, page: Any = None, *lines: str,
        title: str = "", notes: Sequence[str] = (), warnings: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Takes what `--json` prints, what else is printed, the lines around that, and notes and warnings of the call."""
        self._values, self._page, self.title, self._notes = values, page, title, notes
        self.lines: Sequence[str] = lines
        self.warnings = list(warnings)

    @property
    def values(self) -> Any:
        """The values that the verb prints with `--json`."""
        return self._values

    @property
    def remarks(self) -> Sequence[str]:
        """Lines below the page of a notebook."""
        return [*self._notes, *(f"warning: {warning}" for warning in self.warnings)]

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that a reader of the result needs to know."""
        return self.remarks

    def page(self) -> Any:
        """Returns the page that the verb prints: lines, or a table."""
        return self._page

    def _repr_html_(self) -> str:
        """Returns the page, with the remarks below it, as HTML; everything is escaped."""
        from jobs.terminal.live_display import page_text

        return f"<pre>{html.escape(chr(10).join([page_text(self.page(), WIDTH), *self.remarks]))}</pre>"


class Planned(Result):
    """The work and the cost of a run before it is started."""

    @property
    def folder(self) -> str:
        """The folder that the run would have."""
        return str(self.values["folder"])


class Rewrites(Result):
    """The rewrites of some queries, in their order."""

    def __init__(self, tables: Mapping[str, pa.Table], warnings: Sequence[str]) -> None:
        self.table = tables["rewrites"]
        """A `pyarrow.Table`: query, and the columns of `rewrites/` (query_id, strategy, position, text, weight, ...)."""
        self.errors = tables["errors"]
        """A `pyarrow.Table`: query, and the columns of `errors/`: what the LLM did not give."""
        self.costs = tables["costs"]
        """A `pyarrow.Table`: query, and the columns of `costs/`."""
        notes = [f"{row['query']}: {row['component']}: {row['reason']}" for row in self.errors.to_pylist()]
        super().__init__(notes=notes, warnings=warnings)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.table.to_pylist())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def page(self) -> Any:
        from jobs.pages.render import Head, Table

        rows: list[list[Any]] = []
        for query, texts in groupby(self, itemgetter("query")):
            for number, row in enumerate(texts):
                rows.append(["" if number else query, row["strategy"], row["weight"], row["text"]])
        return Table([Head("query"), Head("strategy"), Head("weight", "{:g}".format), Head("text")], rows).terminal()


class Stored(Result):
    """The folder of a job, finished or not."""

    def __init__(
        self, folder: RunFolder, known: Any = None, warnings: Sequence[str] = (), failures: Sequence[str] = ()
    ) -> None:
        """Takes what was measured (None: it is measured later), and what failed after its end."""
        super().__init__(None, None, folder.storage.root, warnings=warnings)
        self._folder, self._known, self._failures = folder, known, failures
        self.folder = folder.storage.root
        """The folder, a path or a URL."""
        self.state = folder.state
        """`finished`, or the status and how far it is."""
        self.finished = folder.finished
        """True if all its shards are committed, and it is closed."""
        self.record = folder.record
        """The content of `run.json`: versions, identity, every start."""

    @property
    def config(self) -> Config:
        """The resolved config."""
        return self._folder.config

    @property
    def report(self) -> str | None:
        """The path or URL of its page; None: there is none yet."""
        from jobs.runs.folder import REPORT

        storage = self._folder.storage
        return storage.url(REPORT) if storage.stat(REPORT) is not None else None

    @property
    def leading(self) -> str:
        """Its first measure, of the results or the best arm; empty: not measured, or not known yet."""
        return "" if self._known is None else str(self._known.leading)

    def __repr__(self) -> str:
        """Returns the folder, the state, and the key figures that are known."""
        from jobs.terminal.formats import queries

        counts = self._folder.counts
        figures = f"{queries(counts.get('queries', 0))}, {counts.get('failed_queries', 0):,} with errors"
        figures += f"; {self.leading}" if self.leading else ""
        return f"{type(self).__name__}({self.folder!r}, {self.state}: {figures})"

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """Name of a committed table -> its files; a table without rows has one, once the run is finished."""
        from cluster.run.shards import SUCCESS
        from jobs.runs.folder import stored_json

        folder = self._folder
        named = stored_json(folder.storage, SUCCESS).get("tables", {}) if folder.finished else {}
        return {table: [folder.storage.url(key) for key in keys] for table, keys in named.items()} | dict(folder.tables)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a table as a `pyarrow.Table`, with these columns alone, or all.

        Raises:
            ConfigError: there is no such table, or no such column.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from cluster.storage import open_file

        parts = []
        for url in self._files(name):
            with open_file(url) as file:
                opened = pq.ParquetFile(file)
                for column in columns or ():
                    if column not in opened.schema_arrow.names:
                        known = nearest(column, opened.schema_arrow.names)
                        raise ConfigError("argument", f"{name}: no column {column!r}{known}")
                parts.append(opened.read(None if columns is None else list(columns)))
        return pa.concat_tables(parts)

    def relation(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Returns a table as a DuckDB relation, which reads the files when it is used; by default of a new connection."""
        from cluster.storage.s3_duckdb import open_duckdb

        return (connection or open_duckdb()).read_parquet(self._files(name), hive_partitioning=False)

    def _files(self, name: str) -> list[str]:
        if name not in self.tables:
            raise ConfigError("argument", f"{self.folder}: no table {name!r}{nearest(name, list(self.tables))}")
        return self.tables[name]

    @cached_property
    def prices(self) -> Prices | None:
        """The prices beside its config; None: there are none."""
        return prices_of_run(self._folder)

    @property
    def costs(self) -> pa.Table:
        """A `pyarrow.Table` with a row per stage, component and model: USD, and every quantity. Nodes apart (`usd`)."""
        import pyarrow as pa

        bill, rows = None if self.prices is None else self._folder.bill(self.prices), []
        for stage, components in self._folder.spent.items():
            for key, sums in components.items():
                component, _, model = key.partition("@")
                named = {"stage": stage, "component": component, "model": model or None}
                rows.append(named | {"usd": None if bill is None else bill.usd_of(stage, key, sums)} | dict(sums))
        texts = [pa.field(name, pa.string()) for name in ("stage", "component", "model")]
        quantities = sorted({name for row in rows for name in row} - {"stage", "component", "model"} - {"usd"})
        numbers = [pa.field(name, pa.float64()) for name in ("usd", *quantities)]
        return pa.Table.from_pylist(rows, pa.schema([*texts, *numbers]))

    @property
    def usd(self) -> float | None:
        """The whole cost, that of the nodes included; None: without a prices.yaml beside the config."""
        return None if self.prices is None else self._folder.bill(self.prices).usd

    def quality(
        self, qrels: str | Mapping[str, Mapping[str, int]] | None = None, **more: Any
    ) -> MeasuredQuality | JoinedQuality:
        """Measures it as `evaluate` does, with the same arguments; judgements are a file, or key -> doc_id -> grade."""
        from dmqr.analysis import evaluate

        return evaluate(self.folder, *([] if qrels is None else [qrels]), **more)


class Run(Stored):
    """A run."""

    @property
    def notes(self) -> list[str]:
        return list(self.values["notes"])

    @cached_property
    def values(self) -> dict[str, Any]:
        """Returns the values of `dmqr run --json`; a run that was opened is measured by the judgements of its config."""
        from dmqr.quality import Truth
        from jobs.pages.summary import closing_values

        measured = self._known or Truth(self._folder, note=self.warnings.append).measured()
        return closing_values(self._folder, self.prices, measured, self._failures)

    def page(self) -> Any:
        """Returns the closing table, as far as it is known."""
        from jobs.pages.comparison import UNMEASURED
        from jobs.pages.summary import closing_table

        return closing_table(self._folder, self.prices, self._known or UNMEASURED, self._failures)


class Ablation(Stored):
    """An ablation."""

    @property
    def arms(self) -> list[str]:
        """The names of its arms; the first one is the config itself."""
        return [arm["name"] for arm in self._folder.arms]

    @cached_property
    def values(self) -> dict[str, Any]:
        """Returns the values of `dmqr ablate --json`; one that was opened is measured by the judgements of its config."""
        from jobs.pages.ablation import closing_values

        return closing_values(self._compared)

    def page(self) -> Any:
        """Returns the closing table and the comparison of the arms."""
        from jobs.pages.ablation import closing_page

        return closing_page(self._compared)

    @cached_property
    def _compared(self) -> ComparedArms:
        from dmqr.quality import Truth
        from jobs.pages.ablation import compared

        truth = Truth(self._folder, note=self.warnings.append)
        return self._known or compared(self._folder, truth.judgements, truth.settings(), self.prices, truth.gold)
