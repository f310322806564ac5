"""The border of a stage: what it is given and what it gives back is its schema, to the last column.

A column that is missing or of another type would else be found three stages later, as something else.
"""

from __future__ import annotations

import pyarrow as pa

from cluster import ClusterError


def check_border(where: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """ClusterError that names what is missing, unknown and of another type, unless the schemas are equal."""
    if found.equals(wanted, check_metadata=False):
        return
    missing = [name for name in wanted.names if name not in found.names]
    extra = [name for name in found.names if name not in wanted.names]
    other = [f"{n}: {found.field(n).type} instead of {wanted.field(n).type}" for n in wanted.names
             if n in found.names and found.field(n).type != wanted.field(n).type]  # fmt: skip
    raise ClusterError(
        f"{where} a table that is not its schema: missing {missing}, unknown {extra}, of another type {other}, "
        f"found {found.names}; report it: a stage is at fault"
    )
