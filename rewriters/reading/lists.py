"""Reads several texts from lines that are numbered, bulleted or bare, or from one column of a Markdown table.

Where lines have numbers, only they count: what is indented below, or has bullets behind them, is said about them. Of lines
with bullets those of the first list count, or of each list under a heading of its own. Bare lines count without headings,
introductions, comments and thoughts.
"""

import re
from typing import NamedTuple

from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.reading.answer import LlmAnswer, Value
from rewriters.reading.lines import BULLET, FENCE, has_text, is_chatter
from rewriters.reading.markup import ROW, table, without_emphasis
from rewriters.reading.words import talk
from rewriters.reading.words.refusals import is_refusal, without_questions

# "**Documents:** x", "**Documents** - x", "Documents: x".
_LEAD_IN = re.compile(
    r"(?P<bold>\*\*|__)(?P<lead>[^*_\n]{1,120}?)(?P<inside>\s?[:：])?(?P=bold)\s?(?P<mark>[:：]|[-–—](?=\s))?\s?(?P<rest>.*)"
)
_PLAIN_LEAD_IN = re.compile(r"(?P<lead>[^\W\d_][^:：\n.?!\"“]{0,40}?)\s?(?::\s|：)\s{0,2}(?P<rest>\S.*)")
_QUOTED = re.compile(
    r"(?:\"(?P<a>[^\"]{3,})\"|“(?P<b>[^”]{3,})”|「(?P<c>[^」]{3,})」|«(?P<d>[^»]{3,})»)\s?(?:[-–—:：(（]\s?\S|$)"
)
_MOST_LEAD_WORDS, _MOST_COMMON_LEAD = 4, 7  # words; of leads that all begin alike ("From a ...'s perspective: ")
# "x - *looks at a side*", "x? (Answer: y)"
_ASIDE = re.compile(r"\s[-–—]?\s?\(?\*[^*\n]{3,120}\*\)?$|(?<=[?？])\s?[(（][^():：]{1,20}[:：][^()]{1,120}[)）]$")


class MarkedLine(NamedTuple):
    """A line with a mark."""

    at: int  # its number in the answer
    text: str  # behind the mark
    indented: bool  # spaces before the mark
    number: int | None = None  # the number, where it is one in digits
    kind: str = "bullet"  # of the mark: number ("1."), named ("Query 1:"), sign ("①", "a)") or bullet


def tidied(items: list[MarkedLine], query: str) -> list[tuple[int, str]]:
    """Returns texts without lead-ins and explanations."""
    kept = [
        row
        for row in items
        if row.text and not (is_chatter(row.text, query) or talk.is_thought(row.text, query) or talk.RULE.match(row.text))
    ]
    plain = [_PLAIN_LEAD_IN.match(one.text) for one in kept]
    leads = [found["lead"] for found in plain if found is not None]
    alike = len({lead.split()[0].casefold() for lead in leads}) == 1 and len(leads) > 2
    most = _MOST_COMMON_LEAD if alike else _MOST_LEAD_WORDS
    all_led = len(leads) == len(kept) > 1 and all(_is_lead(lead, query, most) for lead in leads)
    tidy = []
    for line, lead in zip(kept, plain, strict=True):
        text = lead["rest"] if all_led and lead is not None else _without_lead_in(line.text, query)
        quoted = _QUOTED.match(text)
        if quoted and text[:1] not in query:
            text = next(filter(None, quoted.groups()))
        text = _ASIDE.sub("", without_emphasis(text).strip()) or text
        tidy.append((line.at, text.replace("**", "").strip() if text.count("**") == 1 else text))
    return tidy


def _is_lead(lead: str, query: str, most: int) -> bool:
    """Returns True if the words before a colon introduce the text: few, and none of them the query's."""
    tokens = {word for word in normalise(lead).split() if len(word) > 2 or not word.isascii()} or {normalise(lead)}
    return length(lead) <= most and not tokens & set(normalise(query).split()) and normalise(lead) not in normalise(query)


def _without_lead_in(text: str, query: str) -> str:
    """Returns a text without a bold lead-in; the bold words themselves where what follows explains them."""
    match = _LEAD_IN.match(text)
    if match is None or not match["rest"].strip():
        return text
    if not (match["mark"] or match["inside"]):
        return text
    lead, rest = match["lead"].strip(), match["rest"].strip()
    known = set(normalise(query).split())
    shared = [len(set(normalise(part).split()) & known) for part in (lead, rest)]
    if length(lead) > 2 and (shared[0] > shared[1] or (shared[0] == shared[1] and length(lead) > _MOST_LEAD_WORDS)):
        return lead
    return rest


NUMBERED, LINES = "numbered", "lines"
_MAX_LINES = 200  # of an answer; one in lines has a handful
_NUMBER = re.compile(
    r"""(?P<indent>\s{0,12})[*_]{0,2}(?:
        \(?(?P<count>\d{1,2})(?:\ufe0f?\u20e3|[.):](?=\s|[^\x00-\u024f]|[*_]|$)|[、．）：])
      # above: "1. x", "(1) x", "**1.** x", "1、x"
      # "Q1: x", "Query 1: x"
      | (?:[QS]|(?:[^\W\d_]{3}-)?[^\W\d_][^\W\d_-]{1,19}[ #-]{0,2})(?P<named>\d{1,2})\ ?[*_]{0,2}(?:[:：.)]|\ [-–—](?=\ ))
      # "① x", "一、x", "a) x"
      | (?P<sign>[\u2460-\u2473] | [（(]?[一二三四五六七八九十]{1,3}[、．）)] | \(?(?:[a-hA-H]|[ivxIVX]{1,4})[.)](?=\s))
    )[*_]{0,2}\s{0,4}(?P<text>.*)""",
    re.VERBOSE,
)
_QUOTED_LIST = re.compile(r"\s*(?:[\"“][^\"“”]{3,}[\"”]\s?[,，;、]?\s*){2,}$")
_SENTENCES = re.compile(r"[.。](?:\s+\S|[^\x00-\u024f])")


def read_listed(answer: LlmAnswer, most: int) -> tuple[list[Value], str]:
    """Returns the texts of the lines of an answer, in order, `most` of which were asked for.

    The last is incomplete if the answer was cut in it.
    """
    lines = answer.text.split("\n")[:_MAX_LINES]
    last = max((at for at, line in enumerate(lines) if has_text(line)), default=0)
    texts, parsed_as = _read(lines, answer, most)
    return [Value(text, complete=not (answer.truncated and at == last)) for at, text in texts], parsed_as


def _read(lines: list[str], answer: LlmAnswer, most: int) -> tuple[list[tuple[int, str]], str]:
    """Returns the texts with the numbers of their lines, and what they were read as."""
    query = answer.query
    first = next((at for at, line in enumerate(lines) if has_text(line)), 0)
    begins = _paragraph(lines, first)
    thought = talk.is_thought(begins, query) and not (talk.is_introduction(begins, query) and not _SENTENCES.search(begins))
    numbered = _numbered(lines)
    bullets = [
        MarkedLine(at, match["text"], line[0].isspace()) for at, line in enumerate(lines) if (match := BULLET.match(line))
    ]
    marked = min((one.at for one in [*numbered, *bullets]), default=first)
    if (thought and answer.truncated) or _refuses(begins, _paragraph(lines[:marked], first), query):
        return [], LINES
    rows = table(lines)
    if rows:
        return _column(rows, lines, query), NUMBERED
    if numbered:
        inline = _inline(numbered[0]) if len(numbered) == 1 else []
        chosen = inline or _of_numbers(_blocks(numbered)[-1 if thought else 0], bullets, lines, query)
        return tidied(chosen, query), NUMBERED
    if bullets:
        return tidied(_of_bullets(bullets, lines), query), NUMBERED
    bare = [MarkedLine(at, text, indented=False) for at, text in _bare(lines, answer, most)]
    return tidied(bare, query), LINES


def _refuses(begins: str, told: str, query: str) -> bool:
    """Returns True if an answer refuses and announces no texts, or its lines are questions to the asker.

    It `begins` with its first paragraph, of which `told` stands above lines with marks.
    """
    if is_refusal(begins, query) and not talk.announces_texts(begins):
        return True
    rest = without_questions(told)
    return rest != told and not talk.announces_texts(rest.rstrip(" *_:："))


def _paragraph(lines: list[str], at: int) -> str:
    """Returns all lines up to an empty one; what stands in a fence belongs to it."""
    end = at
    while end < len(lines) and lines[end].strip():
        end += 1
    return " ".join(lines[at:end])


def _numbered(lines: list[str]) -> list[MarkedLine]:
    """Returns the items lines of the least indentation; numbers behind a word only if they count from 1."""
    items = []
    for at, line in enumerate(lines):
        number = _NUMBER.match(line)
        if number:
            digits = number["count"] or number["named"]
            kind = "sign" if number["sign"] else "named" if number["named"] else "number"
            items.append(MarkedLine(at, number["text"].strip(), bool(number["indent"]), int(digits) if digits else None, kind))
    of_kind = {kind: [one for one in items if one.kind == kind] for kind in ("number", "named", "sign")}
    if [one.number for one in of_kind["named"]] != list(range(1, len(of_kind["named"]) + 1)):
        of_kind["named"] = []
    if len(of_kind["sign"]) == 1:
        of_kind["sign"] = []  # "I. Newton" is no numbering
    chosen = of_kind["number"] or of_kind["named"] or of_kind["sign"]
    least = min((one.indented for one in chosen), default=False)
    return [one for one in chosen if one.indented == least]


def _inline(line: MarkedLine) -> list[MarkedLine]:
    """Returns the texts of a line with more numbers within it ("1. x 2. y"); empty if they do not count from 1."""
    parts = re.split(r"\s\(?(\d{1,2})[.)]\s+", f" 1. {line.text}")[1:]
    counts, texts = parts[::2], parts[1::2]
    if counts != [str(n) for n in range(1, len(texts) + 1)]:
        return []
    return [line._replace(text=text.strip(" ;,")) for text in texts]


def _in_one_line(line: str, most: int) -> list[str]:
    """Returns the texts of a line: those in quotation marks, or as many as were asked for between other marks."""
    if _QUOTED_LIST.match(line):
        return re.findall(r"[\"“]([^\"“”]+)[\"”]", line)
    parts = [part.strip() for part in re.split(r"[;；|]", line)]
    return parts if len(parts) == most > 1 and all(parts) else []


def _blocks(numbered: list[MarkedLine]) -> list[list[MarkedLine]]:
    blocks: list[list[MarkedLine]] = []
    for line in numbered:
        before = blocks[-1][-1] if blocks else None
        if before is None or (line.number == 1 and before.number is not None and before.number > 1):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _are_heads(numbered: list[MarkedLine], lines: list[str], query: str) -> bool:
    """Returns True if numbered lines, bold as a whole, are headings: below each is a line that has more of the query."""
    if not all(talk.is_heading(lines[one.at]) and "".join(lines[one.at + 1 : one.at + 2]).strip() for one in numbered):
        return False
    known = set(normalise(query).split())
    shared = [[len(known & set(normalise(line).split())) for line in lines[one.at : one.at + 2]] for one in numbered]
    return sum(below - head for head, below in shared) > 0


def _of_numbers(numbered: list[MarkedLine], bullets: list[MarkedLine], lines: list[str], query: str) -> list[MarkedLine]:
    """Returns the texts of numbered lines; where a line is only a heading, those of the lines below it."""
    kept: list[MarkedLine] = []
    ends = [one.at for one in numbered[1:]] + [len(lines)]
    heads = _are_heads(numbered, lines, query)
    for head, end in zip(numbered, ends, strict=True):
        below = [bullet for bullet in bullets if head.at < bullet.at < end]
        if not head.text or talk.ends_in_colon(head.text) or (talk.is_heading(head.text) and below):
            beneath = [MarkedLine(at, lines[at].strip(), True) for at in range(head.at + 1, end) if has_text(lines[at])]
            kept += below or beneath[:1]
        elif heads or (
            talk.is_heading(head.text)
            and head.at + 1 < end
            and lines[head.at + 1].strip()
            and not talk.is_comment(lines[head.at + 1], "")
        ):
            kept.append(MarkedLine(head.at + 1, lines[head.at + 1].strip(), True))
        else:
            kept.append(head)
    return kept


def _of_bullets(bullets: list[MarkedLine], lines: list[str]) -> list[MarkedLine]:
    """Returns the bullets of the first list; of all lists where each has a heading."""
    least = min(one.indented for one in bullets)
    groups: list[tuple[str, list[MarkedLine]]] = []
    for bullet in bullets:
        between = [line for line in lines[groups[-1][1][-1].at + 1 if groups else 0 : bullet.at] if has_text(line)]
        if not groups or between:
            groups.append((between[-1] if between else "", []))
        groups[-1][1].append(bullet)
    chosen = groups if all(talk.is_heading(head) for head, _ in groups) else groups[:1]
    return [one for _, group in chosen for one in _with_heads(group, least)]


def _with_heads(group: list[MarkedLine], least: bool) -> list[MarkedLine]:
    """Returns the bullets of the least indentation; instead of one that is only a heading those below it."""
    kept: list[MarkedLine] = []
    head: MarkedLine | None = None
    for line in group:
        if line.indented == least:
            head = line if talk.ends_in_colon(line.text) or talk.is_heading(line.text) else None
            if head is None or not talk.ends_in_colon(line.text):
                kept.append(line)
        elif head is not None:
            kept = [other for other in kept if other is not head]
            kept.append(line)
    return kept


def _column(rows: list[list[str]], lines: list[str], query: str) -> list[tuple[int, str]]:
    """Returns the column of a table that has the texts: the one that is named so, else the one with the longest cells."""
    head, body = rows[0], rows[1:]
    width = min(map(len, rows))
    columns = [at for at in range(width) if not all(re.fullmatch(r"[\W\d]*", row[at]) for row in body)]
    named = [at for at in columns if talk.given_in(head[at]) and not re.search(r"(?i)original|type|intent|focus|#", head[at])]
    if not columns:
        return []
    chosen = named[0] if named else max(columns, key=lambda at: sum(len(row[at]) for row in body))
    at_row = [at for at, line in enumerate(lines) if ROW.match(line)]
    numbers = at_row[-len(body) :]
    return [
        (number, row[chosen])
        for number, row in zip(numbers, body, strict=False)
        if row[chosen] and normalise(row[chosen]) != normalise(query)
    ]


def _bare(lines: list[str], answer: LlmAnswer, most: int) -> list[tuple[int, str]]:
    """Returns the lines that may be texts, of an answer without marks."""
    query = answer.query
    blocks: list[list[tuple[int, str]]] = [[]]
    for at, line in enumerate(lines):
        if not line.strip():
            blocks.append([])
        elif not (FENCE.fullmatch(line) or talk.RULE.match(line) or ROW.match(line)):
            blocks[-1].append((at, line))
    blocks = [block for block in blocks if block]
    thought = False
    while (
        blocks
        and (talk.is_more_thought if thought else talk.is_thought)(" ".join(line for _, line in blocks[0]), query)
        and not (len(blocks[0]) > 1 and not thought and talk.is_introduction(blocks[0][0][1], query))
    ):
        thought = True
        blocks = blocks[1:]
    if thought:
        blocks = blocks[-1:]
    if len(blocks) > 1 and len(blocks[0]) == 1 and any(len(block) > 1 for block in blocks[1:]):
        blocks = blocks[1:]  # a line above a block of lines is its heading
    if len(blocks) > 1 and len(blocks[-1]) == 1 and len(blocks[0]) > 1:
        blocks = blocks[:-1]  # and one below it a comment
    texts = [(at, line.strip()) for block in blocks for at, line in block]
    texts = [one for one in texts if len(texts) == 1 or not (talk.is_label(one[1], query) and talk.is_heading(one[1]))]
    if len(texts) == 1 and (parts := _in_one_line(texts[0][1], most)):
        return [(texts[0][0], part) for part in parts]
    if len(texts) > 1 and (talk.is_introduction(texts[0][1], query) or talk.is_label(texts[0][1], query)):
        texts = texts[1:]
    kept: list[tuple[int, str]] = []
    for at, line in texts:
        if talk.is_comment(line, query) and kept:
            break
        if is_chatter(line, query) or talk.is_thought(line, query) or talk.is_only_talk(line, query):
            continue
        if talk.ends_in_colon(line) and len(texts) > 1:
            continue
        if re.match(r"\s{0,3}#{1,6}\s", line) or (
            talk.is_heading(line) and not all(talk.is_heading(other) for _, other in texts)
        ):
            continue
        kept.append((at, without_emphasis(line)))
    if any(_SENTENCES.search(line) for _, line in kept) or (
        answer.truncated and any(talk.ends_as_sentence(line) for _, line in kept)
    ):
        return []  # running text
    return kept
