"""Small files in the published formats of data sets; every question and passage is invented."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

STRAIT = ["Hollin Point", ["Hollin Point looks over a strait nine kilometres wide.", " Its lamp was lit in 1902."]]
LIGHT = ["Marwick Light", ["Marwick Light was built in 1871.", " It guards a strait four kilometres wide."]]
LETTERS = ["Letters from the Lamp Room", ["Letters from the Lamp Room is a book by Ada Renn, keeper at Hollin Point."]]
ROOM = ["Lamp room", ["The lamp room holds lens and lamp."]]


def hotpotqa() -> list[dict[str, Any]]:
    """Three questions; a paragraph stands in each, and the last lacks a supporting one, as in the fullwiki form."""
    return [
        {
            "_id": "a1", "question": "Is the strait of Marwick Light wider than that of Hollin Point?", "answer": "no",
            "supporting_facts": [["Marwick Light", 1], ["Hollin Point", 0]], "type": "comparison", "level": "medium",
            "context": [LIGHT, STRAIT, ROOM],
        },
        {
            "_id": "a2", "question": "When was the lamp lit whose keeper wrote Letters from the Lamp Room?", "answer": "1902",
            "supporting_facts": [["Letters from the Lamp Room", 0], ["Hollin Point", 1]], "type": "bridge", "level": "hard",
            "context": [LETTERS, STRAIT, ROOM],
        },
        {
            "_id": "a3", "question": "Which lens does the lamp of Ada Renn have?", "answer": "a drum\tlens",
            "supporting_facts": [["Lenses", 0], ["Letters from the Lamp Room", 0]], "type": "bridge", "level": "hard",
            "context": [LETTERS, ROOM, STRAIT],
        },
    ]  # fmt: skip


def musique_record(name: str, answerable: bool, texts: list[tuple[str, str, bool]], **more: Any) -> dict[str, Any]:
    """A record; `texts`: title, text and whether it supports, of each paragraph."""
    paragraphs = [
        {"idx": n, "title": title, "paragraph_text": text, "is_supporting": supports}
        for n, (title, text, supports) in enumerate(texts)
    ]
    steps = [{"id": n, "question": f"#{n} >> of", "answer": "x", "paragraph_support_idx": None} for n in range(int(name[0]))]
    return {
        "id": name, "paragraphs": paragraphs, "question": f"what is {name}", "question_decomposition": steps,
        "answer": "Ada Renn", "answer_aliases": ["A. Renn", " "], "answerable": answerable,
    } | more  # fmt: skip


def musique() -> list[dict[str, Any]]:
    """MuSiQue-Full: a question with its twin, one that is answerable alone, one that is not."""
    keeper, lamp, sea = ("Keepers", "Ada Renn kept it.", True), ("Lamps", "It burned oil.", True), ("Sea", "It is deep.", False)
    return [
        musique_record("2hop__1_2", False, [keeper, sea]),
        musique_record("2hop__1_2", True, [keeper, lamp, sea]),
        musique_record("3hop1__1_2_3", True, [lamp, ("Sea", "It is wide.", False)], answer_aliases=[]),
        musique_record("4hop2__4_5_6_7", False, [sea]),
    ]


def ambignq() -> list[dict[str, Any]]:
    """The full form: one reading, three, and annotators of two minds."""
    single = {"type": "singleAnswer", "answer": ["1902", "in 1902"]}
    pairs = [
        {"question": f"when was the lamp of {one} lit?", "answer": [year]}
        for one, year in zip("ABC", ["1871", "1902", "1911"], strict=True)
    ]
    several = {"type": "multipleQAs", "qaPairs": pairs}
    more = {"used_queries": [{"query": "lamp", "results": [{"title": "Lamp", "snippet": "..."}]}], "nq_answer": ["1902"]}
    return [
        {"id": "-77", "question": "When was the lamp lit?", "annotations": [single], "viewed_doc_titles": ["Lamp"]} | more,
        {"id": "78", "question": "When was it built?", "annotations": [several], "viewed_doc_titles": []} | more,
        {"id": "79", "question": "Who kept it?", "annotations": [single, several], "viewed_doc_titles": ["Lamp", "Sea"]} | more,
    ]


def freshqa() -> str:
    """The export of the spreadsheet: two lines before the header, sources of several lines, blank records at the end."""
    names = ["id", "split", "question", "effective_year", "next_review", "false_premise", "num_hops", "fact_type", "source"]
    names += [*(f"answer_{n}" for n in range(10)), "note"]
    rows: list[list[str]] = [["Warning: do not click, it moves the rows"], []]
    rows += [names, ["0", "TEST", "Who keeps Marwick Light, now?", "2026", "weekly", "FALSE", "one-hop", "fast-changing",
                     "https://light.example\nhttps://lamp.example", "Ada Renn", "A. Renn"]]  # fmt: skip
    rows += [["1", "DEV", "When did Ada Renn walk on the moon?", "before 2022", "occasionally", "TRUE", "multi-hop",
              "never-changing", "https://moon.example", "She has not been on the moon."]]  # fmt: skip
    rows += [[], ["2", "TEST", 'What is a "drum lens"?', "2025", "yearly", "FALSE", "one-hop", "slow-changing", ""], []]
    out = io.StringIO()
    csv.writer(out).writerows([*row, *[""] * (len(names) - len(row))] for row in rows)
    return out.getvalue()


FILES = {
    "hotpotqa": json.dumps(hotpotqa()),
    "musique": "".join(json.dumps(one) + "\n" for one in musique()),
    "ambignq": json.dumps(ambignq(), indent=1),
    "freshqa": freshqa(),
}
"""Set -> the text of its file."""
