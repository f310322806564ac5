"""Reader of gold answers of log rows or queries."""

from __future__ import annotations

import io

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import open_file
from jobs.log.judgements import Key
from rewriters.normalise import normalise

_WHERE = "evaluate.answers"


def read_answers(path: str, key: Key) -> dict[str, list[str]]:
    """Returns key -> gold answers, from lines of tab-separated `key answer` in UTF-8; a key may have several lines.

    Raises:
        ConfigError: the file cannot be read, or a line has other columns.
    """
    answers: dict[str, list[str]] = {}
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                name, tab, answer = line.rstrip("\n").partition("\t")
                name = normalise(name) if key == "query" else name
                if not line.strip():
                    continue
                if not tab or not name or not answer.strip():
                    raise ConfigError(
                        "judgements", f"{_WHERE}: {path}: line {number} is not '{key}<TAB>answer'; correct it: {line[:80]!r}"
                    )
                answers.setdefault(name, []).append(answer)
    except UnavailableError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError("judgements", f"{_WHERE}: {path}: cannot be read: {why}; give another file") from error
    return answers
