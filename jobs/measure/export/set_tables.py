"""The measures of an ablation over sets, key by key, as Parquet or CSV for other tools."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from jobs.measure.compare.difference import Comparison
from jobs.measure.export.tables import check_ending, long_table, write_table_file


def set_rows(sets: Mapping[str, Mapping[str, Comparison]]) -> pa.Table:
    """Returns a row per set, arm, measure and counted key: set, key, query_id, arm, measure, value.

    Args:
        sets: set -> kind -> comparison.
    """
    parts = []
    for name, of_kinds in sets.items():
        rows = long_table(*(one.frame for one in of_kinds.values()))
        parts.append(rows.add_column(0, "set", pa.repeat(name, rows.num_rows)))
    return pa.concat_tables(parts)


def write_set_rows(path: str, sets: Mapping[str, Mapping[str, Comparison]], option: str = "") -> None:
    """Writes `set_rows` to a local file or an object on S3, Parquet or CSV by its ending.

    Raises:
        ConfigError: the path, given by `option`, ends in neither .parquet nor .csv.
    """
    check_ending(path, option)
    write_table_file(path, set_rows(sets))
