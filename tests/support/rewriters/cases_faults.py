"""Answers to joint requests that are cut, or hold what is no rewrite."""

from __future__ import annotations

import json

from rewriters.joint import joint_template
from rewriters.pool import load, load_pool
from tests.support.rewriters.cases import ALL, FOUR, JSON, KEPT_THREE, LABELLED, LOOP, NUMBERED, QUERY, Case, G, P, every

CASES = [
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
        KEPT_THREE | {"core_content": "!truncated"},
        "labelled",
        cut=True,
    ),
    Case(
        "labelled, cut in the passage's second sentence",
        f"General Search Rewriting: {G}\nPseudo-Answer Rewriting: {P} The parcel tak",
        every("truncated") | {"general": G, "pseudo_answer": P},
        "labelled",
        cut=True,
    ),
    Case(
        "json, cut in the passage's second sentence",
        f'{{"general": "{G}", "pseudo_answer": "{P} The parcel tak',
        every("truncated") | {"general": G, "pseudo_answer": P},
        "salvage",
        cut=True,
    ),
    Case(
        "json, cut in the passage's first sentence",
        f'{{"general": "{G}", "pseudo_answer": "{P[:-1]}',
        every("truncated") | {"general": G},
        "salvage",
        cut=True,
    ),
    Case("numbered, cut", NUMBERED[:-6], KEPT_THREE | {"core_content": "!truncated"}, "numbered", cut=True),
    # not a rewrite
    Case("empty", "", every("empty")),
    Case("white space", " \n\n ", every("empty")),
    Case("empty and cut", "", every("cut_reasoning"), cut=True),
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
    Case("the worked example", json.dumps({n: load(n).example for n in FOUR}), every("echo")),
    Case(
        "the worked example, then the answer",
        json.dumps({n: load(n).example for n in FOUR}) + f"\nQuery: {QUERY}\n{JSON}",
        ALL,
        "json",
    ),
    Case(
        "the instructions back",
        joint_template(load_pool(FOUR)).partition("For example")[0],
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
        json.dumps({"general": "iPhone 15 price", "core_content": "iPhone 15"}),
        every("missing") | {"general": "!wrong_language", "core_content": "iPhone 15"},
        "json",
        query="iPhone 15 多少钱",
    ),
    Case(
        "Chinese for a Latin name",
        json.dumps({"general": "iPhone 15 价格"}, ensure_ascii=False),
        every("missing") | {"general": "!wrong_language"},
        query="iphone 15 price",
    ),
    Case(
        "a romanised query in its own script",
        json.dumps({"general": "東京の天気", "keyword": "東京, 天気"}, ensure_ascii=False),
        every("missing") | {"general": "東京の天気", "keyword": "東京, 天気"},
        "json",
        query="toukyou no tenki",
    ),
    Case(
        "English for Spanish",
        json.dumps({"general": "how much does it cost to send the parcel", "keyword": "parcel, Lyon"}),
        every("missing") | {"general": "!wrong_language", "keyword": "parcel, Lyon"},
        "json",
        query="cuanto cuesta enviar el paquete de lyon a oporto",
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
