"""Malformed answers, and the outcome of each: a rewrite and the reader that found it, or a reason."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from rewriters.joint import joint_template
from rewriters.reading.ladder import Parsed, parse
from rewriters.reasons import MESSAGES
from rewriters.strategy import load_strategy

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
    asked: tuple[str, ...] = FOUR
    cut: bool = False


def every(reason: str) -> dict[str, str]:
    return dict.fromkeys(FOUR, f"!{reason}")


JOINT = [
    # JSON
    Case("json", JSON, ALL, "json"),
    Case("json in a fence", f"```json\n{JSON}\n```", ALL, "json"),
    Case(
        "json after a preamble with braces",
        f"Sure! The {{four}} rewrites:\n\n{JSON}\n\nHope it helps {{}}",
        ALL,
        "json",
    ),
    Case("json with labels as keys", json.dumps({load_strategy(n).label: t for n, t in ALL.items()}), ALL, "json"),
    Case(
        "json with keys in any spelling",
        json.dumps({"GENERAL": G, " Key-Word ": K, "Pseudo Answer": P, "coreContent": C}),
        ALL,
        "json",
    ),
    Case("json within json", json.dumps({"query": QUERY, "rewrites": ALL}), ALL, "json"),
    Case("json in a list", json.dumps([ALL]), ALL, "json"),
    Case("one json object per line", "\n".join(json.dumps({n: t}) for n, t in ALL.items()), ALL, "json"),
    Case("keywords as a list", json.dumps(ALL | {"keyword": K.split(", ")}), ALL, "json"),
    Case("alternatives as a list", json.dumps(ALL | {"general": [G, C]}), ALL | {"general": "!unparsable"}, "json"),
    Case("a list of one", json.dumps(ALL | {"general": [G]}), ALL, "json"),
    Case("null", json.dumps(ALL | {"keyword": None}), ALL | {"keyword": "!empty"}, "json"),
    Case("number", json.dumps(ALL | {"keyword": 20}), ALL | {"keyword": "!unparsable"}, "json"),
    Case("true", json.dumps(ALL | {"keyword": True}), ALL | {"keyword": "!unparsable"}, "json"),
    Case("object", json.dumps(ALL | {"keyword": {"terms": K}}), ALL | {"keyword": "!unparsable"}, "json"),
    Case("empty string", json.dumps(ALL | {"keyword": "  "}), ALL | {"keyword": "!empty"}, "json"),
    Case("missing key", json.dumps(KEPT_THREE), KEPT_THREE | {"core_content": "!missing"}, "json"),
    Case("a key twice: the later one", '{"general": "a draft", ' + JSON[1:], ALL, "json"),
    Case("a draft before the answer", json.dumps(ALL | {"general": "a draft"}) + f"\nBetter:\n{JSON}", ALL, "json"),
    Case("line breaks within strings", JSON.replace("Lyon to", "Lyon\nto"), ALL, "json"),
    Case("NUL and controls in strings", JSON.replace("Lyon to", "Lyon \\u0000\\u0007to"), ALL, "json"),
    Case("half a surrogate pair", JSON.replace("Lyon to", "Lyon\\ud83d to"), ALL, "json"),
    Case("its label inside the string", json.dumps(ALL | {"general": f"General Search Rewriting: {G}"}), ALL, "json"),
    Case("the schema back", json.dumps({"properties": {n: {"type": "string"} for n in FOUR}}), every("unparsable")),
    Case(
        "a number of 5,000 digits",
        '{"general": ' + "9" * 5000 + ', "keyword": "parcel lyon"}',
        every("missing") | {"general": "!unparsable", "keyword": "parcel lyon"},
        "json",
    ),
    # reasoning
    Case("think, closed", f"<think>First {{}} 1. hm\nKeyword Rewriting: no</think>\n{JSON}", ALL, "json"),
    Case("think, json inside", f'<think>{{"general": "draft"}}</think>{JSON}', ALL, "json"),
    Case(
        "think, only the closing tag",
        f"The user wants...\nKeyword Rewriting: no\n</think>\n\n{LABELLED}",
        ALL,
        "labelled",
    ),
    Case("think, nested", f"<think>a<think>b</think>c</think>{LABELLED}", ALL, "labelled"),
    Case("think, never closed", f"<think>{LABELLED}", every("empty")),
    Case("think, cut", "<think>The user wants to send a parcel and", every("truncated"), cut=True),
    Case("think after the answer", f"{LABELLED}\n<think>was that right?", ALL, "labelled"),
    Case("thinking by another tag", f"<Thinking>\nhm\n</Thinking>\n{JSON}", ALL, "json"),
    Case(
        "a query about the tag",
        json.dumps(ALL | {"general": "what does the </think> tag mean"}),
        ALL | {"general": "what does the </think> tag mean"},
        "json",
        query="what does </think> mean in qwen parcel",
    ),
    # labelled lines
    Case("labelled", LABELLED, ALL, "labelled"),
    Case("labelled by the paper's short names", "\n".join(f"{s}: {t}" for s, t in SHORT.items()), ALL, "labelled"),
    Case("short names, bold and small", "\n".join(f"- **{s.lower()}:** {t}" for s, t in SHORT.items()), ALL, "labelled"),
    Case(
        "labels with short names", LABELLED.replace("ting:", "ting (GQR):", 1).replace("tion:", "tion (CCE):"), ALL, "labelled"
    ),
    Case("short names with labels", LABELLED.replace("Keyword Rewriting", "KWR (Keyword Rewriting)"), ALL, "labelled"),
    Case("json with short names as keys", json.dumps(SHORT), ALL, "json"),
    Case(
        "cut json with short names as keys",
        json.dumps(SHORT)[:-20],
        KEPT_THREE | {"core_content": "!truncated"},
        "salvage",
        cut=True,
    ),
    Case("a short name alone", f"GQR: {G}\nKWR: KWR\nPAR: {P}\nCCE: {C}", ALL | {"keyword": "!echo"}, "labelled"),
    Case("labelled by name", "\n".join(f"{n}: {t}" for n, t in ALL.items()), ALL, "labelled"),
    Case(
        "bold labels",
        LABELLED.replace("Rewriting:", "Rewriting:**")
        .replace("Extraction:", "Extraction:**")
        .replace("General", "**General")
        .replace("\n", "\n**"),
        ALL,
        "labelled",
    ),
    Case("bold lines", "\n".join(f"**{line}**" for line in LABELLED.split("\n")), ALL, "labelled"),
    Case(
        "bold label, colon outside",
        "\n".join(f"- **{load_strategy(n).label}**: {t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case("numbered labels", "\n".join(f"{i}. {line}" for i, line in enumerate(LABELLED.split("\n"), 1)), ALL, "labelled"),
    Case("bullets and full-width colons", "\n".join(f"* {n}：{t}" for n, t in ALL.items()), ALL, "labelled"),
    Case(
        "label with its code",
        "\n".join(f"{load_strategy(n).label} (XYZ): {t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case(
        "value on the next line",
        "\n\n".join(f"### {load_strategy(n).label}\n{t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case(
        "value after an empty line",
        "\n\n".join(f"**{load_strategy(n).label}:**\n\n{t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case("all on one line", LABELLED.replace("\n", "; "), ALL, "labelled"),
    Case("labels in another order", "\n".join(reversed(LABELLED.split("\n"))), ALL, "labelled"),
    Case("quoted values", "\n".join(f'{n}: "{t}"' for n, t in ALL.items()), ALL, "labelled"),
    Case(
        "quoted phrase at both ends",
        f'general: "Lyon" to "Porto"\nkeyword: {K}\npseudo_answer: {P}\ncore_content: {C}',
        ALL | {"general": '"Lyon" to "Porto"'},
        "labelled",
    ),
    Case("in a fence", f"Here you are:\n```text\n{LABELLED}\n```\nLet me know!", ALL, "labelled"),
    Case(
        "preamble and chatter",
        f"Certainly! Here are the four rewrites:\n\n{LABELLED}\n\nThese rewrites keep all names.",
        ALL,
        "labelled",
    ),
    Case("reason line", f"{LABELLED}\nreason: parcels are hard", ALL, "labelled"),
    Case(
        "reason after the passage",
        f"keyword: {K}\npseudo_answer: {P}\nreason: it is enough",
        {"general": "!missing", "keyword": K, "pseudo_answer": P, "core_content": "!missing"},
        "labelled",
    ),
    Case("passage over lines", LABELLED.replace("Porto costs", "Porto\ncosts"), ALL, "labelled"),
    Case(
        "a strategy that is not in the plan ends a passage",
        f"{LABELLED}\nHypothetical Document: foo".replace(f"\nCore Content Extraction: {C}", ""),
        KEPT_THREE | {"core_content": "!missing"},
        "labelled",
    ),
    Case("label without value", LABELLED.replace(K, ""), ALL | {"keyword": "!empty"}, "labelled"),
    Case("windows line ends", LABELLED.replace("\n", "\r\n"), ALL, "labelled"),
    Case("end token", f"{LABELLED}<|im_end|>", ALL, "labelled"),
    Case(
        "explained a second time",
        f"{LABELLED}\n\nGeneral Search Rewriting: it keeps all.\nKeyword Rewriting: only nouns.",
        ALL,
        "labelled",
    ),
    Case(
        "keywords as bullets",
        f"general: {G}\nkeyword:\n- parcel\n- Lyon\npseudo_answer: {P}\ncore_content: {C}",
        ALL | {"keyword": "parcel, Lyon"},
        "labelled",
    ),
    Case(
        "3.11 within and at the start of values",
        "general: python 3.11 release date\nkeyword: 3.11 release date, python\n"
        "pseudo_answer: 3.11 came out in October.\ncore_content: 3.11 release",
        {
            "general": "python 3.11 release date",
            "keyword": "3.11 release date, python",
            "pseudo_answer": "3.11 came out in October.",
            "core_content": "3.11 release",
        },
        "labelled",
    ),
    Case(
        "letters that only look like a label's",
        LABELLED.replace("Keyword Rewriting", "Keyword Rewr\u0131ting"),  # a dotless i: equal without regard to case
        ALL | {"keyword": "!missing"},
        "labelled",
    ),
    Case(
        "a definition, carried on",
        json.dumps(ALL | {"keyword": f"{load_strategy('keyword').definition}: parcel, Lyon"}),
        ALL | {"keyword": "!echo"},
        "json",
    ),
    Case(
        "tags that are the subject",
        json.dumps({"general": "<br>", "keyword": "<your keywords>"}),
        every("missing") | {"general": "<br>", "keyword": "!echo"},
        "json",
        query="difference of br and p tag",
    ),
    # numbered lines
    Case("numbered", NUMBERED, ALL, "numbered"),
    Case("numbered in brackets", f"(1) {G}\n(2) {K}\n(3) {P}\n(4) {C}", ALL, "numbered"),
    Case("numbered in bold", f"**1.** {G}\n**2.** {K}\n**3.** {P}\n**4.** {C}", ALL, "numbered"),
    Case("numbered with chatter", f"Here are the rewrites:\n\n{NUMBERED}\n\nI hope this helps!", ALL, "numbered"),
    Case(
        "numbered, a version at a line's start",
        f"1. {G}\n2. {K}\n3. {P}\n3.11 release date\n4. {C}",
        ALL | {"pseudo_answer": f"{P} 3.11 release date"},
        "numbered",
    ),
    Case(
        "a version is no number",
        "3.11 release date\n3.12 release date\n3.13 release date\n3.14 release date",
        every("unparsable"),
    ),
    Case("one number too many", f"{NUMBERED}\n5. more", every("unparsable")),
    Case("one number too few", f"1. {G}\n2. {K}\n3. {P}", every("unparsable")),
    Case("numbers from 0", f"0. {G}\n1. {K}\n2. {P}\n3. {C}", every("unparsable")),
    Case(
        "numbers with labels of their own",
        f"1. Keywords: {K}\n2. Query: {G}\n3. Core: {C}\n4. Answer: {P}",
        every("unparsable"),
    ),
    # half answers
    Case(
        "json cut in a string",
        JSON[: JSON.index("Porto price")],
        KEPT_THREE | {"core_content": "!truncated"},
        "salvage",
        cut=True,
    ),
    Case(
        "the same without the engine's word for it",
        JSON[: JSON.index("Porto price")],
        KEPT_THREE | {"core_content": "!unparsable"},
        "salvage",
    ),
    Case("json without its brace", JSON[:-1], ALL, "salvage"),
    Case("json with a comma too many", JSON[:-1] + ",}", ALL, "salvage"),
    Case("json with single quotes", str(ALL), ALL, "salvage"),
    Case(
        "json with bare quotes inside",
        JSON.replace("20 kg parcel from", '"20 kg" parcel from', 1),
        ALL | {"general": G.replace("20 kg", '"20 kg"')},
        "salvage",
    ),
    Case(
        "run-away white space",
        '{"general": "' + G + '"' + " \n\t" * 3000,
        every("truncated") | {"general": "!truncated"},
        cut=True,
    ),
    Case("labelled, cut", LABELLED[:-6], KEPT_THREE | {"core_content": "!truncated"}, "labelled", cut=True),
    Case(
        "labelled, cut in a label",
        LABELLED[: LABELLED.index("Content Ext")],
        {"general": G, "keyword": K, "pseudo_answer": "!truncated", "core_content": "!truncated"},
        "labelled",
        cut=True,
    ),
    Case("numbered, cut", NUMBERED[:-6], KEPT_THREE | {"core_content": "!truncated"}, "numbered", cut=True),
    # not a rewrite
    Case("empty", "", every("empty")),
    Case("white space", " \n\n ", every("empty")),
    Case("empty and cut", "", every("truncated"), cut=True),
    Case("prose", "A parcel of 20 kg is cheap to send from Lyon to Porto.", every("unparsable")),
    Case("refusal", "I'm sorry, but I can't help with that request.", every("refusal")),
    Case("refusal in Chinese", "抱歉，我无法回答这个问题。", every("refusal"), query="怎么寄包裹"),
    Case(
        "refusal of one",
        json.dumps(ALL | {"pseudo_answer": "I don't have access to current prices."}),
        ALL | {"pseudo_answer": "!refusal"},
        "json",
    ),
    Case(
        "loop to the limit",
        f"General Search Rewriting: {LOOP}",
        every("truncated") | {"general": "!repetition"},
        "labelled",
        cut=True,
    ),
    Case(
        "loop in a string that was closed",
        json.dumps(ALL | {"general": LOOP}),
        ALL | {"general": "!repetition"},
        "json",
    ),
    Case(
        "loop in Chinese",
        json.dumps({"general": "包裹价格" * 30, "keyword": "里昂, 波尔图"}, ensure_ascii=False),
        every("missing") | {"general": "!repetition", "keyword": "里昂, 波尔图"},
        "json",
        query="从里昂寄包裹到波尔图",
    ),
    Case(
        "loop that counts",
        f"keyword: {', '.join(f'parcel {n}' for n in range(200))}\ngeneral: {G}",
        every("missing") | {"keyword": "!repetition", "general": G},
        "labelled",
    ),
    Case("loop of nothing known", "the the the the " * 40, every("repetition"), cut=True),
    Case(
        "placeholders",
        json.dumps({"general": "<rewrite>", "keyword": "...", "pseudo_answer": "[your answer here]", "core_content": "string"}),
        every("echo"),
    ),
    Case(
        "nothing in words",
        json.dumps({"general": "N/A", "keyword": "none", "pseudo_answer": "-", "core_content": "?!"}),
        every("empty"),
    ),
    Case("label as value", json.dumps(ALL | {"keyword": "Keyword Rewriting"}), ALL | {"keyword": "!echo"}, "json"),
    Case("the worked example", json.dumps({n: load_strategy(n).example for n in FOUR}), every("echo")),
    Case(
        "the worked example, then the answer",
        json.dumps({n: load_strategy(n).example for n in FOUR}) + f"\nQuery: {QUERY}\n{JSON}",
        ALL,
        "json",
    ),
    Case(
        "the instructions back",
        joint_template([load_strategy(n) for n in FOUR]).partition("For example")[0],
        every("echo"),
    ),
    Case(
        "Chinese for English",
        json.dumps(ALL | {"keyword": "包裹, 里昂, 波尔图"}),
        ALL | {"keyword": "!wrong_language"},
        "json",
    ),
    Case("English for Russian", JSON, every("wrong_language"), query="как отправить посылку"),
    Case(
        "Han for Hangul",
        json.dumps({"general": "包裹价格"}),
        every("missing") | {"general": "!wrong_language"},
        query="소포 가격",
    ),
    Case(
        "kanji for kana",
        json.dumps({"general": "小包 料金"}, ensure_ascii=False),
        every("missing") | {"general": "小包 料金"},
        "json",
        query="こづつみ りょうきん",
    ),
    Case(
        "Latin name in a Chinese query",
        json.dumps({"general": "iPhone 15 price"}),
        every("missing") | {"general": "iPhone 15 price"},
        "json",
        query="iPhone 15 多少钱",
    ),
    Case(
        "too long",
        json.dumps(ALL | {"core_content": " ".join(f"word{n * n}" for n in range(120))}),
        ALL | {"core_content": "!too_long"},
        "json",
    ),
    Case("the query itself", json.dumps(dict.fromkeys(FOUR, QUERY)), dict.fromkeys(FOUR, QUERY), "json"),
    Case(
        "the query itself, however long",
        json.dumps({"core_content": "cheap parcel " * 90}),
        every("missing") | {"core_content": ("cheap parcel " * 90).strip()},
        "json",
        query="cheap parcel " * 90,
    ),
    Case(
        "a query of punctuation",
        json.dumps({"general": "???"}),
        every("missing") | {"general": "???"},
        "json",
        query="???",
    ),
]

KEYWORD, GENERAL, PASSAGE = ("keyword",), ("general",), ("pseudo_answer",)
SINGLE = [
    Case("plain", "parcel, Lyon", {"keyword": "parcel, Lyon"}, "salvage", asked=KEYWORD),
    Case("quoted", '"parcel Lyon"', {"general": "parcel Lyon"}, "salvage", asked=GENERAL),
    Case(
        "quoted phrase of the query",
        '"to be or not"',
        {"general": '"to be or not"'},
        "salvage",
        '"to be or not to be"',
        GENERAL,
    ),
    Case("preamble", f"Here is the rewritten query: {G}", {"general": G}, "salvage", asked=GENERAL),
    Case(
        "preamble on a line of its own",
        f"Sure! Here's the rewritten query:\n\n**{G}**",
        {"general": G},
        "salvage",
        asked=GENERAL,
    ),
    Case("fence", f"```\n{G}\n```", {"general": G}, "salvage", asked=GENERAL),
    Case("label", f"Keyword Rewriting: {K}", {"keyword": K}, "labelled", asked=KEYWORD),
    Case("four labels where one was asked", LABELLED, {"keyword": K}, "labelled", asked=KEYWORD),
    Case("json with another key", json.dumps({"rewritten_query": G}), {"general": G}, "json", asked=GENERAL),
    Case("json with the query beside", json.dumps({"query": QUERY, "rewrite": G}), {"general": G}, "json", asked=GENERAL),
    Case("json that says nothing known", json.dumps({"a": "x", "b": "y"}), {"general": "!unparsable"}, "", asked=GENERAL),
    Case("json list", json.dumps(K.split(", ")), {"keyword": K}, "json", asked=KEYWORD),
    Case(
        "json quoted in a passage",
        'A record such as {"name": "parcel"} is JSON.',
        {"pseudo_answer": 'A record such as {"name": "parcel"} is JSON.'},
        "salvage",
        asked=PASSAGE,
    ),
    Case("one number", f"1. {G}", {"general": G}, "numbered", asked=GENERAL),
    Case(
        "a number of the query's own",
        "1. FC Köln results",
        {"general": "1. FC Köln results"},
        "salvage",
        "1. fc köln result",
        GENERAL,
    ),
    Case("a version", "3.11 release date", {"general": "3.11 release date"}, "salvage", "python 3.11 release", GENERAL),
    Case("bulleted keywords", "- parcel\n- Lyon\n- Porto", {"keyword": "parcel, Lyon, Porto"}, "salvage", asked=KEYWORD),
    Case("numbered alternatives", f"1. {G}\n2. {C}", {"general": "!unparsable"}, "", asked=GENERAL),
    Case("explained", f"{G}\n\nThis rewrite keeps the weight.", {"general": G}, "salvage", asked=GENERAL),
    Case("two lines that might both be it", f"{G}\n{C}", {"general": "!unparsable"}, "", asked=GENERAL),
    Case(
        "thinks aloud",
        f"Okay, so the user wants the cheapest way.\n\n{G}",
        {"general": "!unparsable"},
        "",
        asked=GENERAL,
    ),
    Case("passage over lines", P.replace("Porto ", "Porto\n"), {"pseudo_answer": P}, "salvage", asked=PASSAGE),
    Case("passage and chatter", f"{P}\n\nLet me know if you need more.", {"pseudo_answer": P}, "salvage", asked=PASSAGE),
    Case("refusal", "I cannot provide prices.", {"pseudo_answer": "!refusal"}, "", asked=PASSAGE),
    Case(
        "a song that refuses",
        "I can't help with falling in love Elvis",
        {"general": "I can't help with falling in love Elvis"},
        "salvage",
        "i cant help with falling in love",
        GENERAL,
    ),
    Case("cut", G[:-8], {"general": "!truncated"}, "", asked=GENERAL, cut=True),
    Case("cut after the line", f"{G}\n\nThis rewrite ke", {"general": G}, "salvage", asked=GENERAL, cut=True),
    Case("passage cut after a line", f"{P}\n", {"pseudo_answer": "!truncated"}, "", asked=PASSAGE, cut=True),
    Case(
        "loop without spaces",
        "怎么寄包裹" * 40,
        {"pseudo_answer": "!repetition"},
        "",
        "怎么寄包裹到波尔图",
        PASSAGE,
        cut=True,
    ),
    Case(
        "a query that opens like a label",
        "keyword: meaning in python",
        {"general": "keyword: meaning in python"},
        "salvage",
        "keyword: meaning",
        GENERAL,
    ),
    Case(
        "a query that opens like a preamble",
        "answer: the series",
        {"general": "answer: the series"},
        "salvage",
        "answer: the",
        GENERAL,
    ),
    Case(
        "great expectations",
        "great, expectations",
        {"keyword": "great, expectations"},
        "salvage",
        "great expectations",
        KEYWORD,
    ),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{len(case.asked)} {case.id}") for case in [*JOINT, *SINGLE]])
def test_what_an_answer_becomes(case: Case) -> None:
    requested = [load_strategy(name) for name in case.asked]
    known = [load_strategy(name) for name in FOUR]
    instructions = joint_template(requested) if len(requested) > 1 else requested[0].prompt
    outcome = parse(case.answer, case.query, requested=requested, known=known, instructions=instructions, truncated=case.cut)
    shown = {name: one.text if isinstance(one, Parsed) else f"!{one.reason}" for name, one in outcome.items()}
    assert shown == case.expected
    readers = {one.parsed_as for one in outcome.values() if isinstance(one, Parsed)}
    assert readers == ({case.reader} if readers else set())


def test_the_table_meets_every_reason() -> None:
    met = {text[1:] for case in [*JOINT, *SINGLE] for text in case.expected.values() if text.startswith("!")}
    assert met == set(MESSAGES)
