"""What went wrong in a worker, in one line."""

from __future__ import annotations

import re

_PACKAGES = ("jobs.", "rewriters.", "retrievers.", "cluster.")


def cause(error: BaseException) -> str:
    """Returns what went wrong in one line: an error of ours that a worker raised, else the innermost cause.

    Ray wraps what a worker raised in text of many lines.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit)(:|$)", line)]
    ours = [line.split(": ", 1)[-1] for line in causes if line.startswith(_PACKAGES)]
    others = [line for line in causes if not line.startswith("ray.")]
    return (ours or others or lines or [type(error).__name__])[0].rstrip(".")
