"""Answers to joint requests in lines."""

from __future__ import annotations

import json

from rewriters.pool import load
from tests.support.rewriters.cases import ALL, KEPT_THREE, LABELLED, NUMBERED, SHORT, C, Case, G, K, P, every

CASES = [
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
        "\n".join(f"- **{load(n).label}**: {t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case("numbered labels", "\n".join(f"{i}. {line}" for i, line in enumerate(LABELLED.split("\n"), 1)), ALL, "labelled"),
    Case("bullets and full-width colons", "\n".join(f"* {n}：{t}" for n, t in ALL.items()), ALL, "labelled"),
    Case(
        "label with its code",
        "\n".join(f"{load(n).label} (XYZ): {t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case(
        "value on the next line",
        "\n\n".join(f"### {load(n).label}\n{t}" for n, t in ALL.items()),
        ALL,
        "labelled",
    ),
    Case(
        "value after an empty line",
        "\n\n".join(f"**{load(n).label}:**\n\n{t}" for n, t in ALL.items()),
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
        json.dumps(ALL | {"keyword": f"{load('keyword').definition}: parcel, Lyon"}),
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
    Case("short names and dashes", "\n".join(f"{s} - {t}" for s, t in SHORT.items()), ALL, "labelled"),
    Case("names and long dashes", "\n".join(f"**{load(n).label}** – {t}" for n, t in ALL.items()), ALL, "labelled"),
    *(
        Case(f"names and {mark}", "\n".join(f"{n} {mark} {t}" for n, t in ALL.items()), ALL, "labelled")
        for mark in ("→", "=", "->", "—")
    ),
    Case("names in brackets", "\n".join(f"[{n}] {t}" for n, t in ALL.items()), ALL, "labelled"),
    Case("names alone on their lines", "\n\n".join(f"{n}\n{t}" for n, t in ALL.items()), ALL, "labelled"),
    Case("YAML", "\n".join(f"{n}: >\n  {t}" for n, t in ALL.items()), ALL, "labelled"),
    Case("JSON within a string", json.dumps(json.dumps(ALL)), ALL, "json"),
    Case("an array in the prompt's order", json.dumps(list(ALL.values())), ALL, "json"),
    Case("a call of a tool", json.dumps({"name": "rewrite", "arguments": ALL}), ALL, "json"),
    Case("keys without quotation marks", "{" + ", ".join(f'{n}: "{t}"' for n, t in ALL.items()) + "}", ALL, "salvage"),
    Case("a comment within JSON", json.dumps(ALL).replace('", ', '", // so\n', 1), ALL, "salvage"),
    Case("elements", "<rewrites>\n" + "\n".join(f"<{n}>{t}</{n}>" for n, t in ALL.items()) + "\n</rewrites>", ALL, "labelled"),
    Case("elements by attribute", "".join(f'<rewrite method="{n}">\n{t}\n</rewrite>' for n, t in ALL.items()), ALL, "labelled"),
    Case(
        "a table",
        "Here they are:\n\n| Method | Rewrite | Why |\n|:---|---|---|\n"
        + "\n".join(f"| **{s}** | {t} | so |" for s, t in SHORT.items()),
        ALL,
        "labelled",
    ),
    Case(
        "a table with the methods as its head",
        f"| {' | '.join(ALL)} |\n|---|---|---|---|\n| {' | '.join(ALL.values())} |",
        ALL,
        "labelled",
    ),
    Case(
        "keywords with numbers",
        f"general: {G}\nkeyword:\n1. parcel\n2. Lyon\npseudo_answer: {P}\ncore_content: {C}",
        ALL | {"keyword": "parcel, Lyon"},
        "labelled",
    ),
    Case(
        "a next query behind labels",
        f"{LABELLED}\n\nQuery: weather in tokyo\nGeneral Search Rewriting: weather",
        ALL,
        "labelled",
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
]
