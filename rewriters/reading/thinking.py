"""Removal of the reasoning that a model writes into its answer between marks of its own.

The marks are those of the chat templates of Qwen, DeepSeek, QwQ, EXAONE, GLM, Seed-OSS, MiniMax, Hunyuan, K2 (tags in angle
brackets, with or without a prefix), Kimi (triangles; special tokens), Magistral (square brackets), Command A, PLaMo, Sky-T1
(special tokens), Gemma 4 and MedGemma (channels), gpt-oss (harmony: channels, also where decoding has left out its special
tokens) and Granite (sentences). Reasoning without marks: `talk.py`.
"""

from __future__ import annotations

import re

from rewriters.reading.words import pattern

_MARK = pattern("thinking")
# Harmony without its special tokens: "analysisWe need ...assistantfinalThe passage". A word of a text is followed by a space.
_BARE_ANALYSIS = re.compile(r"\s*(?:analysis|commentary)(?=[^\sa-z.,;:'’-])")
_BARE_FINAL = re.compile(r"assistantfinal|\A\s*final(?=[A-Z\"{\[\d])")
# Granite; programs that show reasoning to people.
_SAID_THOUGHT = re.compile(r"\s*(?:here(?:['’]s| is) my thought process:|thinking(?:\.\.\.|…)\s*\n)", re.IGNORECASE)
_SAID_RESPONSE = re.compile(r"here(?:['’]s| is) my response:|(?:\.\.\.|…)done thinking\.", re.IGNORECASE)
_THOUGHT_FOR = re.compile(
    r"\s*[*_]{0,2}(?:thought|reasoned) for [^\n]{1,30}(?:seconds?|minutes?|s)[*_.]{0,3}\s*\n", re.IGNORECASE
)


def strip_thinking(text: str, query: str) -> str:
    """Returns a text without its reasoning; empty if it ends within it.

    Removed are closed blocks; the text before a closing mark without an opening one (some chat templates contain the opening
    mark); and the text after an opening mark without a closing one. If the query itself contains such a mark, the rewrites may,
    too, and only a block at the very beginning is removed.
    """
    if _may_have_mark(query) and _MARK.search(query):
        started = _MARK.match(text.lstrip())
        closed = next((mark for mark in _MARK.finditer(text) if mark["close"]), None)
        if not started or query.lstrip().startswith(started.group()):
            return text
        return text[closed.end() :] if closed else ""
    if not _may_have_mark(text):
        return _without_unmarked(text.lstrip(" "), query)
    kept: list[str] = []
    since, opened = 0, None
    for mark in _MARK.finditer(text):
        if mark["open"]:
            opened = mark.start() if opened is None else opened
            continue
        if opened is None:
            kept.clear()
        else:
            kept.append(text[since:opened])
        since, opened = mark.end(), None
    kept.append(text[since:opened])
    return _without_unmarked(" ".join(kept).lstrip(" "), query)


def _may_have_mark(text: str) -> bool:
    """Returns whether a text has one of the characters of which every mark has one: a search takes 0.1 ms of an answer."""
    return "<" in text or "◁" in text or "[" in text


def _without_unmarked(text: str, query: str) -> str:
    final = list(_BARE_FINAL.finditer(text))
    if final and not _BARE_FINAL.search(query):
        return text[final[-1].end() :]
    if _BARE_ANALYSIS.match(text) and not query.casefold().lstrip().startswith(("analysis", "commentary")):
        return ""
    text = _THOUGHT_FOR.sub("", text, count=1) if _THOUGHT_FOR.match(text) else text
    if _SAID_THOUGHT.match(text):
        response = list(_SAID_RESPONSE.finditer(text))
        return text[response[-1].end() :] if response else ""
    return text
