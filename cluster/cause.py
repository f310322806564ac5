"""Tells in one line the cause of an error."""

import re
from collections.abc import Iterable
from pathlib import Path

_PACKAGES = ("jobs.", "rewriters.", "retrievers.", "cluster.")
_CAUSE = re.compile(rf"(({'|'.join(map(re.escape, _PACKAGES))})[\w.]+|[A-Za-z_][\w.]*(Error|Exception|Exit))(:|$)")


class KilledWorkerError(Exception):
    """The error of a row that is left out, since workers have died under it."""


def cause(error: BaseException) -> str:
    """Returns a failure's cause in one line: an error of ours that a worker raised (Ray wraps it), else the innermost cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    ours = [line.split(": ", 1)[-1] for line in causes if line.startswith(_PACKAGES)]
    others = [line for line in causes if not line.startswith("ray.")]
    return (ours or others or lines or [type(error).__name__])[0].rstrip(".")


def one_line(text: object, most: int | None = 300) -> str:
    """Returns a text, or the message of an error, in one line of at most `most` characters; None: all of it."""
    return " ".join(str(text).split())[:most]


def absent(path: object) -> str:
    """Returns that no file is at a path, and where a relative one was looked for."""
    name = str(path)
    here = "" if Path(name).is_absolute() or "://" in name else f" in {Path.cwd()}, the current folder"
    return f"no such file or folder{here}"


def yaml_problem(error: Exception) -> str:
    """Returns `line N, column M: problem`; PyYAML's own message has several lines and names a "<unicode string>"."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    text = one_line(problem or error, None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {text}" if mark is not None else text


def redacted(text: object, secrets: Iterable[str | None], most: int | None = None) -> str:
    """Returns a message in one line, with every secret replaced by ***, and what cannot be printed by "?"."""
    line = one_line(text, None)
    for secret in filter(None, secrets):
        line = line.replace(secret, "***")
    return "".join(c if c.isprintable() else "?" for c in line)[:most]
