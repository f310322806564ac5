"""Formatting of numbers, times and untrusted texts for the report."""

from __future__ import annotations

from jobs.terminal.formats import clock

# Characters that a page hides, or that reorder their surroundings, are shown by code point.
_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_NAMED = [*_CONTROLS, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF]
_VISIBLE = {code: f"[U+{code:04X}]" for code in _NAMED}


def shown(text: str, limit: int = 2000) -> str:
    """Returns an untrusted text with control and bidi characters made visible, cut after `limit` characters; not escaped."""
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8").translate(_VISIBLE)


def sentence(words: str) -> str:
    """Returns words as a sentence, with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def number(value: float) -> str:
    """Returns a rounded number like '12,345'."""
    return f"{round(value):,}"


def signed(value: float, places: int = 4) -> str:
    """Returns a difference like '+0.0752', with a minus sign that is as wide as the plus."""
    return f"{round(value, places) + 0.0:+.{places}f}".replace("-", "−")


def percent(share: float) -> str:
    """Returns a share like '1.7 %'; small shares above 0 are '< 0.1 %'."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %")


def duration(seconds: float) -> str:
    """Returns seconds as `clock` does; below ten seconds with one decimal, since parts are compared here."""
    if 0 < seconds < 0.05:
        return "< 0.1 s"
    return f"{seconds:.1f} s" if seconds < 9.95 else clock(seconds)


def size(count: float) -> str:
    """Returns bytes like '512 B' or '3.4 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
