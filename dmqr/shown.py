"""How results show themselves in a notebook, and how Arrow tables become pandas' frames."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from cluster.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from rich.console import RenderableType

WIDTH = 100  # columns


def as_html(page: RenderableType, *notes: str) -> str:
    """Returns what the terminal shows, with notes below it, as HTML; everything is escaped."""
    from jobs.terminal.tables import page_text

    return f"<pre>{html.escape(chr(10).join([page_text(page, WIDTH), *notes]))}</pre>"


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """Returns an Arrow table as a pandas DataFrame.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        what = "to_pandas: pandas is not installed"
        raise ConfigError("package-missing", f"{what}; pip install pandas, or use the Arrow table") from error
    return table.to_pandas()
