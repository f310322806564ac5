"""Pseudoterminals that tests write to."""

from __future__ import annotations

import os

_END = b"\0"


def read_terminal(master: int, slave: int) -> str:
    """Returns what was written to the terminal since the last call.

    The kernel hands it on in the background and in parts: a mark written after it says where it ends.
    """
    os.write(slave, _END)
    shown = b""
    while not shown.endswith(_END):
        shown += os.read(master, 65536)
    return shown[: -len(_END)].decode()
