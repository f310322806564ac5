"""Formats numbers, durations and strangers' texts for a person, on every page and screen."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Characters that a page hides, or that reorder their surroundings, are shown by code point.
_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_NAMED = [*_CONTROLS, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF]
_VISIBLE = {code: f"[U+{code:04X}]" for code in _NAMED}


def listed(reasons: Mapping[str, int], width: int = 120) -> str:
    """Returns reasons with how often each came, as many as fit into `width` characters."""
    texts = [f"{plain(reason)} {n:,}" for reason, n in reasons.items()]
    for kept in range(len(texts), 0, -1):
        text = ", ".join(texts[:kept]) + (f", {len(texts) - kept} more" if kept < len(texts) else "")
        if len(text) <= width:
            return text
    return f"{len(texts)} reasons"


def queries(number: int) -> str:
    """Returns '1 query', '1,200 queries'."""
    return f"{number:,} quer{'y' if number == 1 else 'ies'}"


def planned_rewrites(counts: Mapping[str, int]) -> str:
    """Returns '398 of 400 planned', '1,592 texts for 398 of 400 planned', '150 of 400 planned, 250 not selected'.

    Planned is a rewrite by each strategy of each query, whether it has one text or several.
    """
    texts, further = counts.get("rewrites", 0), counts.get("further_texts", 0)
    text = f"{texts:,} texts for " if further else ""
    text += f"{texts - further:,} of {counts.get('planned', 0):,} planned"
    left_out = counts.get("not_selected", 0)
    return text + (f", {left_out:,} not selected" if left_out else "")


def plain(text: str) -> str:
    """Returns the text with a question mark for every control character and change of direction."""
    return "".join(char if char.isprintable() else "?" for char in text)


def one_line(text: str) -> str:
    """Returns a text in one line, as `plain`: other characters would change the terminal."""
    return plain(" ".join(str(text).split()))


def printable(text: str) -> str:
    """Returns a text with its lines, each as `plain`."""
    return "\n".join(map(plain, text.expandtabs(4).splitlines()))


def shortened(text: str, length: int) -> str:
    """Returns the text, or its beginning with an ellipsis where it is longer than `length` characters."""
    if len(text) <= length:
        return text
    words = text[:length].rpartition(" ")[0]
    return (words if len(words) > length // 2 else text[: length - 1]).rstrip() + "…"


def place_beside(doc_id: str, place: str) -> str:
    """Returns the source of a passage as it is shown beside the id, "" where the id has it: `faq.md#2` is of `faq.md`."""
    return "" if doc_id.startswith(f"{place}#") else place


def per_second(rate: float) -> str:
    """Returns '41.2/s'."""
    return f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def money(usd: float, total: float | None = None) -> str:
    """Returns USD like '$1,234.50' or '$0.0123', with three significant digits of the amount, or of the total `total`."""
    whole = usd if total is None else total
    places = 2 if whole <= 0 else min(9, max(2, 2 - math.floor(math.log10(whole))))
    return f"${usd:,.{places}f}"


def and_more(names: Sequence[str], most: int = 4) -> str:
    """Returns the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def p_words(p: float) -> str:
    """Returns a p-value like '.012' or '< .001'; '-' where there is none."""
    return "-" if math.isnan(p) else "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def short(number: float) -> str:
    """Returns '8,412', '41 k', '3.1 M'."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:,.0f} k" if number < 999_500 else f"{number / 1e6:,.1f} M"


def unpriced(config_file: str) -> str:
    """Returns the reason why a cost is not in money."""
    return f"not in money: there is no prices.yaml beside {config_file}"


def clock(seconds: float) -> str:
    """Returns '42 s', '3 min 20 s', '2 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def masked(values: Any) -> Any:
    """Returns plain values with user and password removed from every URL."""
    if isinstance(values, dict):
        return {key: masked(value) for key, value in values.items()}
    if isinstance(values, list):
        return [masked(value) for value in values]
    if isinstance(values, str):
        return re.sub(r"://(?:[^/?#\s]*|[^:/?#\s]+:\S*)@", "://***@", values)
    return values


def shown(text: str, limit: int = 2000) -> str:
    """Returns an untrusted text with control and bidi characters made visible, cut after `limit` characters; not escaped."""
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8").translate(_VISIBLE)


def sentence(text: str) -> str:
    """Returns words as a sentence, with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def count(value: float) -> str:
    """Returns a rounded number like '12,345'."""
    return f"{round(value):,}"


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


def size(number: float) -> str:
    """Returns bytes like '512 B' or '3.4 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def figure(value: float, sign: str = "") -> str:
    """Returns the value with four decimals, or "-" for NaN."""
    return "-" if math.isnan(value) else f"{round(value, 4) + 0.0:{sign}.4f}"  # + 0.0: turns -0.0 into 0.0


def known(values: Any) -> Any:
    """Returns values as JSON has them: named tuples as objects, None for a number that it does not have (NaN, infinity)."""
    values = values._asdict() if hasattr(values, "_asdict") else values
    if isinstance(values, dict):
        return {key: known(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [known(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
