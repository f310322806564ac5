"""Numbers, money, times and strangers' texts as the page shows them."""

from __future__ import annotations

import math
import re
from typing import Any

from jobs.progress import clock

# Characters that a page would swallow, or that would reorder what stands around them, are shown by name.
_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_NAMED = [*_CONTROLS, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF]
_VISIBLE = {code: f"[U+{code:04X}]" for code in _NAMED}


def shown(text: str, most: int = 2000) -> str:
    """A stranger's text with control and bidi override characters made visible, cut after `most` characters. Not escaped."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8").translate(_VISIBLE)


def number(value: float) -> str:
    """'12,345'."""
    return f"{round(value):,}"


def percent(share: float) -> str:
    """'1.7 %'; what is not nothing is not shown as nothing."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %")


def duration(seconds: float) -> str:
    """As everywhere in the project; below ten seconds with a tenth, since parts are compared here."""
    if 0 < seconds < 0.05:
        return "< 0.1 s"
    return f"{seconds:.1f} s" if seconds < 9.95 else clock(seconds)


def money(usd: float, of: float | None = None) -> str:
    """'$1,234.50', '$0.0123'; as exact as three digits of the total `of` that it is a part of, cents at least."""
    whole = usd if of is None else of
    places = 2 if whole <= 0 else min(9, max(2, 2 - math.floor(math.log10(whole))))
    return f"${usd:,.{places}f}"


def size(count: float) -> str:
    """Bytes: '512 B', '3.4 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def masked(values: Any) -> Any:
    """Plain values with user and password taken out of every URL."""
    if isinstance(values, dict):
        return {key: masked(value) for key, value in values.items()}
    if isinstance(values, list):
        return [masked(value) for value in values]
    if isinstance(values, str):
        return re.sub(r"://(?:[^/?#\s]*|[^:/?#\s]+:\S*)@", "://***@", values)
    return values
