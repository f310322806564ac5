"""Masks personal data before anything is sent, and puts it back in what comes out.

By pattern: mail addresses, card numbers (13 to 19 digits with a valid check digit) and phone numbers (with `+` or `00`, with a
leading zero in groups, as 3-3-4 digits, or after a word such as "tel"). What no pattern knows is sent: names, addresses,
numbers of customers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

MAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}")
CARD = re.compile(r"(?<![\w.,+/-])\d(?:[ -]?\d){12,40}(?![\w/]|[.,]\d)")
PHONE = re.compile(
    r"""(?<![\w.,/+-])(?:
        (?:\+|00)\ ?[1-9](?:[ ./-]?(?:\(\d{1,5}\)|\d)){6,14}      # +49 30 1234567, 0044 (20) 7946 0000
      | \(0?\d{2,5}\)[ ./-]?\d(?:[ .-]?\d){4,9}                   # (030) 123456, (555) 123-4567
      | 0\d{1,5}[ /-]\d(?:[ -]?\d){4,9}                           # 030 123456, 030/123456
      | \d{3}[.-]\d{3}[.-]\d{4}                                   # 555-123-4567
    )(?![\w/-]|[.,]\d)
    """,
    re.VERBOSE,
)
CALLED = re.compile(
    r"(?<!\w)(?:tel|tél|fax|phone|telephone|telefon|mobile|mobil|handy|cell|whatsapp|call|rufnummer)(?:\s?(?:no|nr|number|nummer))?"
    r"\.?[ :]{1,3}(?P<number>\d(?:[ ./-]?\d){5,14})(?![\w/-]|[.,]\d)",
    re.IGNORECASE,
)


class Mask:
    """Masks the texts of one query: the same value has the same placeholder in all of them."""

    def __init__(self, kinds: Iterable[str]) -> None:
        """Masks these kinds: mail, phone, card."""
        self._kinds = set(kinds)
        self.values: dict[str, str] = {}
        """Placeholder, such as MAIL_1 -> what stood there."""
        self._placeholders: dict[tuple[str, str], str] = {}

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(name.partition("_")[0].lower() for name in self.values))

    def __call__(self, text: str) -> str:
        """Returns the text with placeholders such as <MAIL_1>."""
        # A card may look like a phone number.
        for kind, pattern in (("mail", MAIL), ("card", CARD), ("phone", CALLED), ("phone", PHONE)):
            if kind in self._kinds:
                text = self._masked(text, kind.upper(), pattern)
        for name, value in self.values.items():  # what was masked in one text is in others, though no pattern tells it there
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", f"<{name}>", text)
        return text

    def _masked(self, text: str, kind: str, pattern: re.Pattern[str]) -> str:
        def replace(match: re.Match[str]) -> str:
            done, rest = "", match.group()
            value = match["number"] if "number" in pattern.groupindex else rest
            while value := _card_in(rest) if kind == "CARD" else value:
                before, _, rest = rest.rpartition(value) if kind == "PHONE" else rest.partition(value)
                done += f"{before}<{self._placeholder(kind, value, text)}>"
                value = ""
            return done + rest

        return pattern.sub(replace, text)

    def _placeholder(self, kind: str, value: str, text: str) -> str:
        if (kind, value) not in self._placeholders:
            number = 1
            while f"{kind}_{number}" in self.values or re.search(rf"{kind}.?{number}(?!\d)", text, re.IGNORECASE):
                number += 1
            self._placeholders[kind, value] = f"{kind}_{number}"
            self.values[f"{kind}_{number}"] = value
        return self._placeholders[kind, value]


def unmasked(text: str, values: Mapping[str, str]) -> str:
    """Returns the text with the values in place of their placeholders, which a model may have written a little otherwise."""
    for name, value in values.items():
        kind, _, number = name.partition("_")
        spelling = rf"{kind}[ _-]?{number}"
        pattern = rf"(?:&lt;|[<\[{{(])\s?{spelling}\s?(?:&gt;|[>\]}})])|(?<!\w){spelling}(?!\w)"
        text = re.sub(pattern, value.replace("\\", r"\\"), text, flags=re.IGNORECASE)
    return text


def _card_in(digits: str) -> str:
    """Returns the first card number among groups of digits; "" for none."""
    starts = [0, *(found.end() for found in re.finditer("[ -]", digits))]
    ends = [*(found.start() for found in re.finditer("[ -]", digits)), len(digits)]
    parts = (digits[start:end] for start in starts for end in reversed(ends) if end > start)
    return next((part for part in parts if 13 <= sum(map(str.isdigit, part)) <= 19 and has_check_digit(part)), "")


def has_check_digit(number: str) -> bool:
    """Returns True if the digits of a number pass the Luhn test, and are not all the same."""
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
