"""Answers to joint requests in JSON, and with reasoning."""

from __future__ import annotations

import json

from rewriters.pool import load
from tests.support.rewriters.cases import ALL, FOUR, JSON, KEPT_THREE, LABELLED, QUERY, C, Case, G, K, P, every

MARKS = [  # of the chat templates of model families
    ("Qwen", "<think>", "</think>"),
    ("EXAONE", "<thought>", "</thought>"),
    ("a prompt's", "<reasoning>", "</reasoning>"),
    ("Seed-OSS", "<seed:think>", "</seed:think>"),
    ("MiniMax", "<mm:think>", "</mm:think>"),
    ("K2", "<ifm|think_fast>", "</ifm|think_fast>"),
    ("Hunyuan", "<think:opensource>", "</think:opensource>"),
    ("Kimi", "◁think▷", "◁/think▷"),
    ("Kimi, tokens", "<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
    ("Magistral", "[THINK]", "[/THINK]"),
    ("Command A", "<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ("PLaMo", "<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    ("Sky-T1", "<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>"),
    ("Gemma 4", "<|channel>thought\n", "<channel|>"),
    ("MedGemma", "<unused94>thought\n", "<unused95>"),
    ("gpt-oss", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    (
        "gpt-oss to a schema",
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    ),
    ("gpt-oss without tokens", "analysis", "assistantfinal"),
    ("Granite", "Here is my thought process:", "Here is my response:"),
]

CASES = [
    # JSON
    Case("json", JSON, ALL, "json"),
    Case("json in a fence", f"```json\n{JSON}\n```", ALL, "json"),
    Case(
        "json after a preamble with braces",
        f"Sure! The {{four}} rewrites:\n\n{JSON}\n\nHope it helps {{}}",
        ALL,
        "json",
    ),
    Case("json with labels as keys", json.dumps({load(n).label: t for n, t in ALL.items()}), ALL, "json"),
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
    Case("object", json.dumps(ALL | {"keyword": {"terms": K}}), ALL, "json"),
    Case("object of two", json.dumps(ALL | {"keyword": {"a": K, "b": C}}), ALL | {"keyword": "!unparsable"}, "json"),
    Case(
        "objects with a reason each",
        json.dumps({name: {"reason": "it is short", "rewrite": text} for name, text in ALL.items()}),
        ALL,
        "json",
    ),
    Case(
        "a list of methods",
        json.dumps([{"method": name, "rewrite": text} for name, text in ALL.items()]),
        ALL,
        "json",
    ),
    Case(
        "methods by label", json.dumps({"rewrites": [{"name": load(n).label, "text": t} for n, t in ALL.items()]}), ALL, "json"
    ),
    Case(
        "a next query that nobody asked for",
        f'{JSON}\n\nQuery: weather in tokyo\n{{"general": "weather in Tokyo", "keyword": "weather, Tokyo"}}',
        ALL,
        "json",
    ),
    Case("a next turn", f"{JSON}<|im_end|>\n<|im_start|>user\nweather in tokyo\n" + JSON.replace("Lyon", "Tokyo"), ALL, "json"),
    Case("an explanation that quotes", f'{JSON}\n\nThe part {{"general": "x"}} of the query was left out.', ALL, "json"),
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
    Case("think, cut", "<think>The user wants to send a parcel and", every("cut_reasoning"), cut=True),
    Case("think after the answer", f"{LABELLED}\n<think>was that right?", ALL, "labelled"),
    Case("thinking by another tag", f"<Thinking>\nhm\n</Thinking>\n{JSON}", ALL, "json"),
    *(
        Case(f"thinking: {name}", begin + "First a draft.\nKeyword Rewriting: no" + end + JSON, ALL, "json")
        for name, begin, end in MARKS
    ),
    *(
        Case(f"thinking, cut: {name}", begin + "First a draft.\nKeyword Rewriting: no", every("cut_reasoning"), cut=True)
        for name, begin, _ in MARKS
    ),
    *(
        Case(f"thinking, opened by the prompt: {name}", "First a draft.\nKeyword Rewriting: no" + end + JSON, ALL, "json")
        for name, _, end in MARKS[:-2]
    ),
    Case(
        "a query about the tag",
        json.dumps(ALL | {"general": "what does the </think> tag mean"}),
        ALL | {"general": "what does the </think> tag mean"},
        "json",
        query="what does </think> mean in qwen parcel",
    ),
]
