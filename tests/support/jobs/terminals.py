"""Terminals that tests write to."""

import io
import os

from rich.console import Console, RenderableType

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


def printed(part: RenderableType, width: int = 120) -> str:
    """Returns what a terminal of this width would show, without colours."""
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, markup=False, emoji=False).print(part)
    return text.getvalue()


def lines(part: RenderableType, width: int = 80) -> list[str]:
    """Returns the lines of `printed`, none wider than the terminal, with single spaces."""
    shown = printed(part, width).splitlines()
    assert all(len(line) <= width and line.isprintable() for line in shown)
    return [" ".join(line.split()) for line in shown]
