"""Finds a model's talk beside its texts: introductions, headings, comments, and thoughts without marks.

Structure decides where it can: a line that ends in a colon while text follows introduces it, whatever its language. Words
decide where structure cannot: a few openings per language, and the words for what was asked for and given (`_GIVEN`). What
the query itself begins with is never taken for talk.
"""

import re
from functools import lru_cache

from rewriters.normalise import normalise
from rewriters.reading.answer import label_key
from rewriters.reading.lines import is_chatter, opens_with
from rewriters.reading.words import pattern

_GIVEN = pattern("given")
_YES_ALONE = pattern("yes_alone")
_NO_TEXT = pattern("no_text")
_FAILURE = pattern("failure")
_QUOTED = re.compile(r"(?P<label>[^\"“”:：=]{3,60}?)\s?[:：=]?\s?[\"“](?P<text>[^\"“”]{3,})[\"”]\s?[.。]?\s*$")
_IN_QUOTES = re.compile(r"[\"“‘][^\"”’\n]*[\"”’]")
_SHOWN = re.compile(r"\s*(?:this|that|these)\b(?!\s(?:is|are)\s(?:the|my|your)\b)", re.IGNORECASE)  # "this is a ..."
_NOUN = pattern("noun")
_SAYS = pattern("says")
_HERE = pattern("here")
_WORD = re.compile(r"[^\W_]+")
_AROUND = " \"'>*_#`"
_ARROW = re.compile(r"(?P<before>[^→⇒⟶\n]+?)\s?(?:→|⇒|⟶|[-=]{1,2}>)\s?(?P<text>\S.*)")
_MOST_FOREIGN = 30  # characters of a label that is told without its other words
_MOST_LABEL_WORDS, _TELLING = 5, 4  # words of a label; characters of a word that is more than a function word
_MOST_TALK = 250  # characters of an introduction or a heading
_LABEL_WORDS = pattern("label_words")
ORIGINAL = pattern("original")  # a label of what was asked ("Original query: ...")
_LABEL = re.compile(r"[\s*_#>`-]{0,6}(?P<label>[^:：\n]{1,60}?)[*_`]{0,3}\s?[:：][*_`]{0,3}\s{0,3}(?P<rest>.*)", re.DOTALL)
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+\S|\s{0,3}(?P<bold>\*\*|__)(?!\s)[^*_\n]{1,200}(?P=bold)\s?[:：]?\s*$")
RULE = re.compile(r"\s*(?:[-=_*]\s?){3,}\s*$")  # a line that is only drawn
_COLON = re.compile(r"[:：][\s*_`]{0,4}$")

_SENTENCE_END = re.compile(r"[.!。！][\"'”’)\]）」*_]{0,3}\s*$")


@lru_cache(maxsize=1024)  # several checks ask it of the same line
def given_in(text: str) -> bool:
    """Returns True if a text names what was asked for or given, such as a query, a rewrite or a passage."""
    return _GIVEN.search(text[:_MOST_TALK]) is not None


def ends_in_colon(text: str) -> bool:
    """Returns True if a text introduces what follows."""
    return _COLON.search(text) is not None


def ends_as_sentence(text: str) -> bool:
    """Returns True if a text ends with a full stop or an exclamation mark."""
    return _SENTENCE_END.search(text) is not None


def is_heading(line: str) -> bool:
    """Returns True if a line is a Markdown heading, or bold from its beginning to its end."""
    return _HEADING.match(line) is not None


def is_introduction(line: str, query: str) -> bool:
    """Returns True if a line introduces the text that follows; without one, it introduces nothing."""
    stripped = line.strip()
    if not stripped:
        return False
    if ends_in_colon(stripped):
        return True
    if opens_with(query, stripped):
        return False
    if _YES_ALONE.match(stripped) and not opens_with(query, stripped.split()[0]):
        return len(stripped) <= _MOST_TALK
    return len(stripped) <= _MOST_TALK and _announces(stripped)


def announces_texts(paragraph: str) -> bool:
    """Returns True if a paragraph ends in a colon, or has a sentence that says what follows ("Here are the queries.")."""
    sentences = re.split(r"(?<=[.!。！])\s*", paragraph)
    return ends_in_colon(paragraph) or any(map(_announces, sentences))


def is_only_talk(line: str, query: str) -> bool:
    """Returns True if a line is no text even where nothing follows: it was cut, or the model gave no text."""
    if is_label(line, query) or _says_nothing(line, query):
        return True
    if (rest := without_label(line, query)) != line:
        return _says_nothing(rest, query)
    announces = given_in(line) and (ends_in_colon(line) or _announces(line))
    return is_introduction(line, query) and (announces or not ends_in_colon(line))


def _says_nothing(line: str, query: str) -> bool:
    """Returns True if a model says that it will help, or a program that it failed; a query may ask for such a message."""
    match = _NO_TEXT.match(line)
    if match is not None and not _shares_words(_IN_QUOTES.sub("", match.group()), query, _TELLING):
        return True
    return _FAILURE.match(line) is not None and not _shares_words(line, query, _TELLING)


def is_label(line: str, query: str) -> bool:
    """Returns True if a line says only what was asked for, such as "Rewritten query" or "[Passage 1]"."""
    label = line.strip(" *_#:：`[]【】")
    given = list(_GIVEN.finditer(label)) or _NOUN.match(label)
    if not given or len(label) > 60 or label_key(label) in label_key(query):
        return False
    rest = [part.strip() for part in _GIVEN.split(label) if part.strip() and not part.strip().isdigit()]
    # Without Latin letters there are other words for "rewritten" than ours.
    if len(label) <= _MOST_FOREIGN and not re.search(r"[a-z:：]", label, re.IGNORECASE):
        return len(label.split()) <= _MOST_LABEL_WORDS and not _shares_words(label, query)
    return all(_LABEL_WORDS.match(part + " ") or _NOUN.match(part) for part in rest)


def repeats_query(line: str, query: str) -> bool:
    """Returns True if a line is the query, with or without a label of whatever words."""
    rest = re.split(r"[:：]", line, maxsplit=1)[-1]
    return normalise(query) in (normalise(one.strip(_AROUND)) for one in (line, without_label(line, query), rest))


def without_label(line: str, query: str) -> str:
    """Returns a line without an affirmation and a label of what was asked for at its beginning."""
    yes = _YES_ALONE.match(line)
    if yes and yes.end() < len(line.rstrip()) and not opens_with(query, line.split(maxsplit=1)[0].rstrip("!.")):
        line = line[yes.end() :].strip()
    arrow = _ARROW.match(line)
    if arrow and normalise(arrow["before"].strip(_AROUND)) == normalise(query):
        return arrow["text"].strip()
    quoted = _QUOTED.match(line)
    if quoted and given_in(quoted["label"]) and not opens_with(query, quoted["label"]):
        return quoted["text"]
    for _ in range(2):  # "Here is the rewritten query: Query: x"
        match = _LABEL.match(line)
        if not match or not match["rest"].strip() or opens_with(query, match["label"]):
            break
        label = match["label"]
        introduces = _announces(label) or (_SAYS.match(label) and not _shares_words(label, query, _TELLING))
        is_bold = line.lstrip().startswith(f"**{label}") and len(label.split()) <= _MOST_LABEL_WORDS
        if not introduces and not is_label(label, query) and not (is_bold and not _shares_words(label, query)):
            break
        line = match["rest"].strip()
        line = line.removeprefix("**").strip() if line.count("**") % 2 else line
    return line


def _announces(text: str) -> bool:
    """Returns True if a text begins with words that show something, and names what was asked for."""
    return _HERE.match(text) is not None and given_in(text) and not _SHOWN.match(text)


def _shares_words(text: str, query: str, least: int = 1) -> bool:
    """Returns True if two texts share a word of at least `least` characters."""
    known = set(_WORD.findall(normalise(query)))
    return any(word in known and (len(word) >= least or not word.isascii()) for word in _WORD.findall(normalise(text)))


def is_comment(line: str, query: str) -> bool:
    """Returns True if a line behind a text comments on it."""
    if is_chatter(line, query) or RULE.match(line) or (is_heading(line) and given_in(line)):
        return True
    stripped = line.strip()
    if stripped[:1] in ("(", "（") and stripped[-1:] in (")", "）"):
        return True
    return ends_as_sentence(stripped) and given_in(stripped) and not opens_with(query, stripped)


_THOUGHT = pattern("thought")
_USER = pattern("user")
_FIRST_PERSON = pattern("thinks_aloud")
WORKING = pattern("working")  # begins a derivation, behind which the answer may have a label


def is_thought(text: str, query: str) -> bool:
    """Returns True if a line or paragraph is the model's reasoning about its task; the query does not begin so itself."""
    match = _THOUGHT.match(text)
    if match is None or _THOUGHT.match(query) or opens_with(query, text[:40]):
        return False
    subject = _USER.search(match.group())  # a page about users may begin so, too
    return subject is None or subject.group().casefold() not in query.casefold() or given_in(text[:150])


def is_more_thought(text: str, query: str) -> bool:
    """Returns True if a paragraph behind a thought is one, too."""
    return is_thought(text, query) or _FIRST_PERSON.search(text) is not None or (given_in(text) and ends_as_sentence(text))
