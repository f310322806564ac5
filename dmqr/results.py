"""A run or an ablation, finished or not: its folder, tables, costs and quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dmqr.shown import as_html, as_pandas
from jobs.terminal.formats import queries
from jobs.verbs.tables import Tables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from dmqr.quality import MeasuredQuality
    from jobs.config.config import Config
    from jobs.log.judgements import Key
    from jobs.pages.closing import ComparedArms
    from jobs.runs.folder import RunFolder
    from jobs.verbs.whole_run import WholeRun


class Stored:
    """A job's folder."""

    def __init__(self, folder: RunFolder, warnings: Sequence[str] = ()) -> None:
        """Takes an open run folder and its warnings."""
        self._folder = folder
        self.warnings = list(warnings)
        """Warnings of the call that made the run; empty for a run that was only opened."""
        self.tables = Tables(folder)
        """Name -> `pyarrow.Table`, of the committed part; each is read when it is asked for."""

    @property
    def folder(self) -> str:
        """The folder, a path or a URL."""
        return self._folder.storage.root

    @property
    def state(self) -> str:
        """`finished`, or the status and how far it is."""
        return self._folder.state

    @property
    def finished(self) -> bool:
        """Whether all its shards are committed, and it is closed."""
        return self._folder.finished

    @property
    def config(self) -> Config:
        """The resolved config."""
        return self._folder.config

    @property
    def record(self) -> dict[str, Any]:
        """What `run.json` holds: versions, identity, every start."""
        return self._folder.record

    @property
    def report(self) -> str | None:
        """The path or URL of its page; None: there is none yet."""
        from jobs.runs.folder import REPORT

        storage = self._folder.storage
        return storage.url(REPORT) if storage.stat(REPORT) is not None else None

    def __repr__(self) -> str:
        """Returns the folder, the state, and the key figures that are known."""
        counts = self._folder.counts
        figures = f"{queries(counts.get('queries', 0))}, {counts.get('failed_queries', 0):,} with errors"
        figures += f"; {self._leading}" if self._leading else ""
        return f"{type(self).__name__}({self.folder!r}, {self.state}: {figures})"

    @property
    def _leading(self) -> str:
        """Its first measure; empty: not known yet."""
        return ""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a table as a `pyarrow.Table`, with these columns alone, or all.

        Raises:
            ConfigError: there is no such table, or no such column.
        """
        return self.tables.read(name, columns)

    def relation(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Returns a table as a DuckDB relation, which reads the files when it is used.

        Args:
            name: of the table.
            connection: of DuckDB; None: a new one, which also reads s3://.
        """
        return self.tables.relation(name, connection)

    def to_pandas(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Returns a table as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed, or as `table`.
        """
        return as_pandas(self.table(name, columns))

    @property
    def costs(self) -> pa.Table:
        """A `pyarrow.Table` with a row per stage, component and model: USD, and every quantity. Nodes apart (`usd`)."""
        import pyarrow as pa

        from jobs.verbs.inputs import prices_of_run

        prices = prices_of_run(self._folder)
        bill, rows = None if prices is None else self._folder.bill(prices), []
        for stage, components in self._folder.spent.items():
            for key, sums in components.items():
                component, _, model = key.partition("@")
                named = {"stage": stage, "component": component, "model": model or None}
                rows.append(named | {"usd": None if bill is None else bill.of(stage, key, sums)} | dict(sums))
        texts = [pa.field(name, pa.string()) for name in ("stage", "component", "model")]
        quantities = sorted({name for row in rows for name in row} - {"stage", "component", "model"} - {"usd"})
        numbers = [pa.field(name, pa.float64()) for name in ("usd", *quantities)]
        return pa.Table.from_pylist(rows, pa.schema([*texts, *numbers]))

    @property
    def usd(self) -> float | None:
        """The whole cost, that of the nodes included; None: without a prices.yaml beside the config."""
        from jobs.verbs.inputs import prices_of_run

        prices = prices_of_run(self._folder)
        return None if prices is None else self._folder.bill(prices).usd

    def quality(
        self,
        qrels: str | Mapping[str, Mapping[str, int]] | None = None,
        *,
        key: Key | None = None,
        measures: Sequence[str] | None = None,
        answers: str | None = None,
        judged: bool = False,
        baseline: str | None = None,
        baselines: Mapping[str, str] | None = None,
        pairs: bool | None = None,
    ) -> MeasuredQuality:
        """Measures it as `dmqr evaluate` does.

        Args:
            qrels: judgements: a file, or key -> doc_id -> grade; None: those of its config, else of its judge.
            key: what they name: log_id, query_id or query; None: as its config says.
            measures: as ir_measures names them, like `["nDCG@10", "AP@10"]`; None: those of its config.
            answers: a file of gold answers; None: that of its config.
            judged: whether to measure by the grades of its judge alone.
            baseline: the arm that the arms of an ablation are compared with; None: as its config says.
            baselines: an arm or a family, like `bm25*` -> the arm that they are compared with in its place; likewise.
            pairs: whether to compare every two arms, too; likewise.

        Raises:
            ConfigError: there is nothing to measure by, or it cannot be read, or names nothing of the log.
        """
        from dmqr.quality import quality_of

        compared = {"baseline": baseline, "baselines": None if baselines is None else dict(baselines), "pairs": pairs}
        return quality_of(self._folder, qrels, key, measures, answers, judged=judged, compared=compared)


class Run(Stored):
    """A run."""

    def __init__(self, whole: WholeRun, warnings: Sequence[str] = ()) -> None:
        """Takes a run with what is known of it."""
        super().__init__(whole.folder, warnings)
        self._whole = whole

    @property
    def _leading(self) -> str:
        return self._whole.leading

    @property
    def notes(self) -> list[str]:
        """What a reader of its figures needs to know, a sentence each."""
        return list(self.values["notes"])

    @cached_property
    def values(self) -> dict[str, Any]:
        """What `dmqr run --json` prints; a run that was opened is measured by the judgements of its config."""
        return self._evaluated.values()

    @cached_property
    def _evaluated(self) -> WholeRun:
        from jobs.verbs.evaluate import MeasuredBy, measured_run

        if self._whole.evaluation is not None or self._whole.answers or self._whole.said:
            return self._whole
        found = measured_run(self._folder, MeasuredBy.of_config(self._folder, self.warnings.append))
        return replace(self._whole, evaluation=found.lists, answers=found.answers)

    def _repr_html_(self) -> str:
        """Returns the closing table, as far as it is known."""
        return as_html(self._whole.page(), *(f"warning: {words}" for words in self.warnings))


class Ablation(Stored):
    """An ablation."""

    def __init__(self, folder: RunFolder, compared: ComparedArms | None = None, warnings: Sequence[str] = ()) -> None:
        """Takes an ablation; None: its arms are compared when that is asked for."""
        super().__init__(folder, warnings)
        self._known = compared

    @property
    def _leading(self) -> str:
        return "" if self._known is None else self._known.leading

    @property
    def arms(self) -> list[str]:
        """The names of its arms; the first one is the config itself."""
        return [one["name"] for one in self.record["ablation"]["arms"]]

    @cached_property
    def values(self) -> dict[str, Any]:
        """What `dmqr ablate --json` prints; one that was opened is measured by the judgements of its config."""
        from jobs.pages.closing import closing_values

        return closing_values(self._compared)

    @cached_property
    def _compared(self) -> ComparedArms:
        from jobs.pages.closing import compared
        from jobs.verbs.evaluate import MeasuredBy
        from jobs.verbs.inputs import measured_by, prices_of_run

        if self._known is not None:
            return self._known
        by = MeasuredBy.of_config(self._folder, self.warnings.append)
        settings = measured_by(self.config.evaluate, by.judgements)
        return compared(self._folder, by.judgements, settings, prices_of_run(self._folder), by.gold)

    def _repr_html_(self) -> str:
        """Returns the closing table and the comparison of the arms."""
        from jobs.pages.closing import closing_page

        return as_html(closing_page(self._compared), *(f"warning: {words}" for words in self.warnings))
