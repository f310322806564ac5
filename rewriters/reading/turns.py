"""The end of an answer where the model goes on by itself: with a next query, or with the next turn of a conversation.

Base models, adapters without an end token and prompts without a chat template do so. What stands behind is no answer.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rewriters.normalise import normalise
from rewriters.strategy import PLACEHOLDER

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
    words = r"\s?".join(map(re.escape, before.split()))
    return re.compile(rf"^[ *_#>]{{0,6}}{words}[*_]{{0,3}}(?P<rest>[^\n]*)", re.MULTILINE | re.IGNORECASE)


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
    ends = [end for end in ends if _says_something(text[:end])]
    return text[: min(ends)] if ends else text


def _says_something(before: str) -> bool:
    """Returns whether an answer may stand in a text: it is more than an introduction or a heading."""
    lines = [line.strip(" *_`") for line in re.sub(_TOKEN, "", before).split("\n")]
    return any(line and not line.startswith("#") and line[-1:] not in ":：" for line in lines)
