"""Checks the schema of every block that enters or leaves a stage.

Otherwise a missing column, or one of another type, would fail in a later stage, with a misleading message.
"""

from __future__ import annotations

import pyarrow as pa

from cluster.errors import ClusterError


def check_border(where: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Compares a table's schema with a stage's.

    Args:
        where: Beginning of the message: the stage, and "was given" or "returned".
        found: The table's schema.
        wanted: The stage's schema.

    Raises:
        ClusterError: They differ; it names the missing and unknown columns, and those of another type.
    """
    if found.equals(wanted, check_metadata=False):
        return
    missing = [name for name in wanted.names if name not in found.names]
    extra = [name for name in found.names if name not in wanted.names]
    other = [f"{n}: {found.field(n).type} instead of {wanted.field(n).type}" for n in wanted.names
             if n in found.names and found.field(n).type != wanted.field(n).type]  # fmt: skip
    raise ClusterError(
        "stage-table",
        f"{where} a table that is not its schema: missing {missing}, unknown {extra}, of another type {other}, "
        f"found {found.names}; report it: a stage is at fault",
    )
