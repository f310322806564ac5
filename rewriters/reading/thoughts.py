"""Removes what is no answer: reasoning between a model's own marks, and further turns with which a model goes on by itself.

The marks are those of the chat templates of Qwen, DeepSeek, QwQ, EXAONE, GLM, Seed-OSS, MiniMax, Hunyuan, K2 (tags in angle
brackets, with or without a prefix), Kimi (triangles; special tokens), Magistral (square brackets), Command A, PLaMo, Sky-T1
(special tokens), Gemma 4 and MedGemma (channels), gpt-oss (harmony: channels, also where decoding has left out its special
tokens) and Granite (sentences). Reasoning without marks: `talk.py`. Base models, adapters without an end token and prompts
without a chat template go on with a next query, or with the next turn of a conversation.
"""

import re
from functools import lru_cache

from rewriters.normalise import normalise
from rewriters.reading.words import pattern
from rewriters.strategy import PLACEHOLDER

_MARK = pattern("thinking")
# Harmony without its special tokens: "analysisWe need ...assistantfinalThe passage". A word of a text is followed by a space.
_BARE_ANALYSIS = re.compile(r"\s*(?:analysis|commentary)(?=[^\sa-z.,;:'’-])")
_BARE_FINAL = re.compile(r"assistantfinal|\A\s*final(?=[A-Z\"{\[\d])")
# Granite; programs that show reasoning to people.
_SAID_THOUGHT = re.compile(r"\s*(?:here(?:['’]s| is) my thought process:|thinking(?:\.\.\.|…)\s*\n)", re.IGNORECASE)
_SAID_RESPONSE = re.compile(r"here(?:['’]s| is) my response:|(?:\.\.\.|…)done thinking\.", re.IGNORECASE)


def strip_thinking(text: str, query: str) -> str:
    """Returns a text without its reasoning; empty if it ends within it.

    Removed are closed blocks; the text before a closing mark without an opening one (some chat templates contain the opening
    mark); and the text after an opening mark without a closing one. If the query itself contains such a mark, the rewrites may,
    too, and only a block at the very beginning is removed.
    """
    if _MARK.search(query):
        started = _MARK.match(text.lstrip())
        closed = next((mark for mark in _MARK.finditer(text) if mark["close"]), None)
        if not started or query.lstrip().startswith(started.group()):
            return text
        return text[closed.end() :] if closed else ""
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


def _without_unmarked(text: str, query: str) -> str:
    final = list(_BARE_FINAL.finditer(text))
    if final and not _BARE_FINAL.search(query):
        return text[final[-1].end() :]
    if _BARE_ANALYSIS.match(text) and not query.casefold().lstrip().startswith(("analysis", "commentary")):
        return ""
    if _SAID_THOUGHT.match(text):
        response = list(_SAID_RESPONSE.finditer(text))
        return text[response[-1].end() :] if response else ""
    return text


_TOKEN = r"<\|[^<>|\n]{1,40}\|?>|<[^<>|\n]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|start_of_turn)>"
_END = re.compile(
    r"<\|(?:im_end|eot_id|eot|eom_id|eom|end|endoftext|end_of_text|return|END_OF_TURN_TOKEN|END_RESPONSE|im_start|start_header_id"
    r"|start|user)\|>|<turn\|>|<\|turn>|</s>|<(?:end_of_turn|start_of_turn|eos)>|\[INST\]"
)
_CLOSES_JSON = re.compile(rf"(?:{_TOKEN}|\s)*[\"'}}\]`][\s\"'}}\]`]*(?:{_TOKEN}|\s)*\Z")
_TURN = re.compile(
    r"^[ *_#]{0,6}(?:(?:user|human|assistant)[*_]{0,3} ?:"
    r"|(?:instruction|input|user|human)[*_]{0,3} ?:?[*_]{0,3}$|(?:user|human|assistant)$)",
    re.IGNORECASE | re.MULTILINE,
)


@lru_cache(maxsize=64)
def _mark(instructions: str) -> re.Pattern[str] | None:
    """Returns a pattern of lines that begin as the prompt's last line does before the query; None if it has no such words."""
    before = instructions.removesuffix(PLACEHOLDER).rpartition("\n")[2].strip()
    if not any(map(str.isalpha, before)) or len(before) > 60:
        return None
    pattern = r"\s?".join(map(re.escape, before.split()))
    return re.compile(rf"^[ *_#>]{{0,6}}{pattern}[*_]{{0,3}}(?P<rest>[^\n]*)", re.MULTILINE | re.IGNORECASE)


def without_next_turns(text: str, query: str, instructions: str) -> str:
    """Returns an answer without reasoning up to where another query or turn begins; all of it where nothing stands before.

    The prompt's own line with the query is no new one: the model may repeat the prompt. The last line of `instructions`, the
    prompt template, shows how a query is announced.
    """
    ends = []
    if not _END.search(query):
        ends += [at.start() for at in _END.finditer(text) if not _CLOSES_JSON.match(text, at.end())]
    mark = _mark(instructions)
    for at in mark.finditer(text) if mark else ():
        rest = at["rest"].strip(" *_") or text[at.end() :].lstrip("\n").partition("\n")[0].strip()
        if normalise(rest) != normalise(query):
            ends.append(at.start())
    ends += [at.start() for at in _TURN.finditer(text)]
    for end in sorted(ends):  # before which stands more than an introduction or a heading
        lines = [line.strip(" *_`") for line in re.sub(_TOKEN, "", text[:end]).split("\n")]
        if any(line and not line.startswith("#") and line[-1:] not in ":：" for line in lines):
            return text[:end]
    return text
