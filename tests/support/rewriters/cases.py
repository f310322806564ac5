"""What the cases of test_parse_table.py share."""

from __future__ import annotations

import json
from typing import NamedTuple

from rewriters.pool import Entry

FOUR = ("general", "keyword", "pseudo_answer", "core_content")
G = "cheapest way to send a 20 kg parcel from Lyon to Porto"
K = "parcel, 20 kg, Lyon, Porto, cheapest shipping"
P = "Sending a 20 kg parcel from Lyon to Porto costs about 25 euros with a relay-point carrier."
C = "parcel Lyon Porto price"
QUERY = "hello whats the cheapest way to send 20 kg parcel lyon to porto pls"
ALL = dict(zip(FOUR, (G, K, P, C), strict=True))
SHORT = dict(zip(("GQR", "KWR", "PAR", "CCE"), ALL.values(), strict=True))
JSON = json.dumps(ALL)
LABELLED = f"General Search Rewriting: {G}\nKeyword Rewriting: {K}\nPseudo-Answer Rewriting: {P}\nCore Content Extraction: {C}"
NUMBERED = f"1. {G}\n2. {K}\n3. {P}\n4. {C}"
LOOP = "cheap parcel " * 60
KEPT_THREE = {"general": G, "keyword": K, "pseudo_answer": P}


class Case(NamedTuple):
    id: str
    answer: str
    expected: dict[str, str]  # strategy -> the rewrite, or !reason
    reader: str = ""
    query: str = QUERY
    asked: tuple[Entry, ...] = FOUR
    cut: bool = False


def every(reason: str) -> dict[str, str]:
    return dict.fromkeys(FOUR, f"!{reason}")
