"""Files that are packed, by the ending of their name."""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

PACKED = {".gz": "gzip", ".zst": "zstd"}
"""Ending of a file's name -> how it is packed."""


def unpacked(stream: BinaryIO, name: str) -> Any:
    """Returns the stream of what a file of this name holds, to be read from its start to its end."""
    codec = next((codec for ending, codec in PACKED.items() if name.lower().endswith(ending)), None)
    return stream if codec is None else pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec)
