"""Answers to requests for several texts, and their texts; or the reason why there is none."""

from __future__ import annotations

import json
from typing import NamedTuple

FOUR = [
    "car rental requirements iceland",
    "cheapest car hire keflavik",
    "driving licence rules iceland",
    "insurance for rental cars iceland",
]
QUERY = "renting a car in iceland documents"
NUMBERED = "\n".join(f"{n}. {text}" for n, text in enumerate(FOUR, 1))
BARE = "\n".join(FOUR)
THOUGHT = "Okay, the user wants four queries about car rental."
ZH, ZH_QUERY = ["冰岛租车要求", "冰岛租车价格", "冰岛驾照规定"], "冰岛租车要什么证件"


class Several(NamedTuple):
    id: str
    answer: str
    expected: list[str] | str = FOUR
    query: str = QUERY
    cut: bool = False


def each(form: str, texts: list[str] = FOUR) -> str:
    return "\n".join(form.format(n=n, text=text) for n, text in enumerate(texts, 1))


CASES = [
    # reasoning
    Several(
        "thoughts, cut",
        f"{THOUGHT}\n\nLet me think about the price.\n\nHmm, one query could be about documents.\n\nAnd",
        "cut_reasoning",
        cut=True,
    ),
    Several("a thought", "Okay, so the user asks about cars.", "unparsable"),
    Several("thoughts, then lines", f"{THOUGHT}\n\nI should cover the price, too.\n\n{BARE}"),
    Several(
        "drafts in thoughts, then numbers", f"{THOUGHT}\n\n1. Maybe the price?\n2. Perhaps the rules.\n\nFinal:\n{NUMBERED}"
    ),
    Several(
        "numbers in thoughts, cut", f"{THOUGHT}\n\n1. The first could be about price.\n2. The sec", "cut_reasoning", cut=True
    ),
    Several("drafts in thoughts, then JSON", f'{THOUGHT}\n\n["a draft"]\n\n{json.dumps(FOUR)}'),
    Several("gpt-oss without tokens", f"analysisWe need four queries. Let's go.assistantfinal{NUMBERED}"),
    Several("running text", "Cars in Iceland need a licence. They cost a lot. Roads are rough.", "unparsable"),
    # what stands around a list
    Several("bullets below each number", each("{n}. {text}\n   - focuses on a side")),
    Several("bullets behind the numbers", f"1. {FOUR[0]}\n2. {FOUR[1]}\n\nThese cover:\n- documents\n- price", FOUR[:2]),
    Several("bullets behind the bullets", f"- {FOUR[0]}\n- {FOUR[1]}\n\nThese cover:\n- documents\n- price", FOUR[:2]),
    Several("a second list of numbers", f"{NUMBERED}\n\nWhy:\n1. documents\n2. price\n3. rules\n4. cover"),
    Several("a line above bare lines", f"Here are four different queries\n\n{BARE}"),
    Several("a heading above bare lines", f"## Queries\n\n{BARE}"),
    Several("a title above bare lines", f"Car Rental in Iceland\n\n{BARE}"),
    Several("a comment below bare lines", f"{BARE}\n\nEach looks at another side of it."),
    Several(
        "lists under headings",
        f"## Papers\n- {FOUR[0]}\n- {FOUR[2]}\n\n## Money\n- {FOUR[1]}\n- {FOUR[3]}",
        [FOUR[0], FOUR[2], FOUR[1], FOUR[3]],
    ),
    Several("numbers that are headings", "1. **Papers**\n   " + FOUR[0] + "\n2. **Money**\n   " + FOUR[1], FOUR[:2]),
    Several("numbers with bullets as texts", f"1. **Papers:**\n   - {FOUR[0]}\n2. **Money:**\n   - {FOUR[1]}", FOUR[:2]),
    Several("a next query", f"{NUMBERED}\n\nQuery: weather in tokyo\n1. tokyo forecast\n2. rain in tokyo"),
    Several("a refusal", "I'm sorry, but I can't help with that.\n\nIs there anything else I can do?", "refusal"),
    Several("a refusal with advice", "I can't help with that. You could:\n- ask a lawyer\n- call the police", "refusal"),
    Several("an excuse before the texts", f"I'm sorry for the confusion. Here are the queries:\n\n{NUMBERED}"),
    # what stands within an item
    Several("bold lead-ins", each("{n}. **Aspect {n}:** {text}")),
    Several("bold lead-ins, colon outside", each("{n}. **Aspect**: {text}")),
    Several("lead-ins on every line", each("{n}. Reader{n}: {text}".replace("{n}:", ":"))),
    Several("bold texts with explanations", each("{n}. **{text}** - looks at one side")),
    Several("bold texts with explanations behind a colon", each("{n}. **{text}**: for those who compare")),
    Several("quoted texts with explanations", each('{n}. "{text}" - looks at one side')),
    Several("bold texts", each("{n}. **{text}**")),
    Several(
        "a subject before a colon", "1. Iceland: car rental\n2. Iceland: licence", ["Iceland: car rental", "Iceland: licence"]
    ),
    # marks
    Several("words and numbers", each("Query {n}: {text}")),
    Several("words and numbers in bold", each("**Query {n}:** {text}")),
    Several(
        "numbers that are the text's",
        "iPhone 15: price\niPhone 16: price",
        ["iPhone 15: price", "iPhone 16: price"],
        "iphone price",
    ),
    Several(
        "Chinese numbers",
        "以下是三个查询：\n" + "\n".join(f"{n}、{t}" for n, t in zip("一二三", ZH, strict=True)),
        ZH,
        ZH_QUERY,
    ),
    Several("numbers in circles", "\n".join(f"{n} {t}" for n, t in zip("①②③", ZH, strict=True)), ZH, ZH_QUERY),
    Several("letters", "\n".join(f"{n}) {t}" for n, t in zip("abcd", FOUR, strict=True))),
    Several("full-width numbers", "\n".join(f"{n}．{t}" for n, t in zip("１２３", ZH, strict=True)), ZH, ZH_QUERY),
    Several(
        "a Russian list",
        "Вот запросы:\n\nЗапрос 1: аренда авто\nЗапрос 2: страховка авто",
        ["аренда авто", "страховка авто"],
        "авто исландия",
    ),
    Several("numbers on one line", " ".join(f"{n}. {text}" for n, text in enumerate(FOUR, 1))),
    Several("signs", each("✅ {text}")),
    Several("numbers on keys", each("{n}\ufe0f\u20e3 {text}")),
    Several("headings with numbers", "\n\n".join(f"### Query {n}\n{text}" for n, text in enumerate(FOUR, 1))),
    Several("bold headings with numbers", "\n\n".join(f"**Query {n}**\n{text}" for n, text in enumerate(FOUR, 1))),
    Several("one lead-in for all", each("Q: {text}")),
    Several("perspectives", each("{n}. From another reader's perspective: {text}")),
    Several("asides in italics", each("{n}. {text} – *looks at one side*")),
    Several("bold lines with numbers", each("**{n}. {text}**")),
    Several("semicolons", "; ".join(FOUR)),
    Several("quotation marks and commas", ", ".join(f'"{text}"' for text in FOUR)),
    Several("a question back", "Sure, I can help with that!\nWhich kind of cars do you mean?", "unparsable"),
    # other forms
    Several("a list of Python's", str(FOUR)),
    Several(
        "a list of Python's with a name", "```python\nqueries = [\n" + "".join(f"    '{text}',\n" for text in FOUR) + "]\n```"
    ),
    Several("an array with a name", f"queries = {json.dumps(FOUR)}"),
    Several("a table", "| # | Query | Focus |\n|---|---|---|\n" + each("| {n} | {text} | a side |")),
    Several("objects with more than the text", json.dumps([{"query": text, "focus": "a side"} for text in FOUR])),
    Several("JSON lines", "\n".join(json.dumps({"query": text}) for text in FOUR)),
    Several("an object with a reason", json.dumps({"reasoning": "four sides", "queries": FOUR})),
    Several("keys with numbers", json.dumps({"reason": "four sides", **{f"query_{n}": text for n, text in enumerate(FOUR)}})),
    Several("elements", "<queries>" + each("<query>{text}</query>") + "</queries>"),
    Several("elements with numbers", each("<query{n}>{text}</query{n}>")),
    Several("elements with attributes", each('<item id="{n}">{text}</item>')),
]
