"""What of a run is worth a person's look."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from dmqr.shown import as_html, as_pandas

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from jobs.review.review import Review


class ReviewedRun:
    """The rewrites and queries of a run that are worth a look, those first that move most of the traffic."""

    def __init__(self, review: Review) -> None:
        """Takes a review."""
        self._review = review

    @property
    def values(self) -> dict[str, Any]:
        """What `dmqr review --json` prints: rows by reason, and how many documents queries find, by traffic."""
        return self._review.values()

    @cached_property
    def table(self) -> pa.Table:
        """A `pyarrow.Table` with the columns of the sheet but those to fill in."""
        import pyarrow as pa

        from jobs.review.review import sheet_columns

        names, rows = sheet_columns(self._review)
        return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))) if rows else pa.table({})

    def to_pandas(self) -> pd.DataFrame:
        """Returns `table` as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        return as_pandas(self.table)

    def write(self, path: str) -> None:
        """Writes the sheet, as `dmqr review --out` does.

        Raises:
            ConfigError: it is no CSV, or is there.
        """
        from jobs.review.review import check_out, write_sheet

        check_out(path)
        write_sheet(path, self._review)

    def __repr__(self) -> str:
        """Returns how many rows there are."""
        return f"ReviewedRun({len(self._review.rows)} of {self._review.found} rows)"

    def _repr_html_(self) -> str:
        """Returns what `dmqr review` prints."""
        from jobs.pages.review import review_page

        return as_html(review_page(self._review))
