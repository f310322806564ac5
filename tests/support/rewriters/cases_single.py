"""Answers to requests for one strategy."""

from __future__ import annotations

import json

from tests.support.rewriters.cases import LABELLED, QUERY, C, Case, G, K, P

KEYWORD, GENERAL, PASSAGE = ("keyword",), ("general",), ("pseudo_answer",)

STRICT = ({"general": {"name": "general", "words": {"least": 6, "most": 12}, "banned": ["at a glance"]}},)
BANS_GAMBLING = ({"general": {"name": "general", "banned": ["赌博"]}},)

CASES = [
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
        {"general": G},
        "salvage",
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
    Case("passage cut after a line", f"{P}\n", {"pseudo_answer": P}, "salvage", asked=PASSAGE, cut=True),
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
    Case("fewer words than the strategy wants", C, {"general": "!too_short"}, "", asked=STRICT),
    Case("more words than the strategy wants", f"{G}, by train or by road", {"general": "!too_long"}, "", asked=STRICT),
    Case("a banned phrase", "Cheapest way, at a glance, to send 20 kg", {"general": "!banned"}, "", asked=STRICT),
    Case("a banned phrase inside Chinese", "在线赌博网站推荐", {"general": "!banned"}, "", "网上娱乐网站推荐", BANS_GAMBLING),
    Case(
        "the banned phrase as a part of other words",
        "cheapest way to send glances 20 kg",
        {"general": "cheapest way to send glances 20 kg"},
        "salvage",
        asked=STRICT,
    ),
    Case(
        "a banned phrase of the query's",
        "send 20 kg at a glance to Porto",
        {"general": "send 20 kg at a glance to Porto"},
        "salvage",
        "20 kg at a glance to porto",
        STRICT,
    ),
]
