"""Pages of the web as a provider gives them, and hits, whose ids are those of their addresses."""

import hashlib
import math
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cluster.http import encodable

PREFIX = "web:"  # begins the doc_id of a page of the web
_PORTS = {"http": 80, "https": 443}
_TRACKING = ("utm_", "gclid", "fbclid", "msclkid")
_UNRESERVED = "!$&'()*+,;=:@/~"


class WebPage(NamedTuple):
    """A page as a provider tells it; `score` is None where it gives none."""

    url: str
    title: str
    text: str
    score: float | None = None


class WebHit(NamedTuple):
    """A page that was found."""

    doc_id: str
    url: str
    title: str
    text: str
    score: float


def hits_of(pages: Iterable[WebPage], most: int) -> tuple[WebHit, ...]:
    """Returns the first pages as hits, best first: by descending score, equal scores by doc_id.

    Of pages with one address the first counts; what is no address of the web is left out. Where a page has no score, those of
    all are 1 / rank.
    """
    distinct: dict[str, WebPage] = {}
    for page in pages:
        if (doc_id := document_id(page.url)) is not None:
            distinct.setdefault(doc_id, page)
    first = list(distinct.items())[:most]
    told = all(page.score is not None and math.isfinite(page.score) for _, page in first)
    hits = []
    for rank, (doc_id, page) in enumerate(first, start=1):
        score = float(page.score or 0) if told else 1 / rank
        hits.append(WebHit(doc_id, encodable(page.url), _one_line(page.title), _one_line(page.text), score))
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.doc_id)))


def indexed_text(title: str, text: str) -> str:
    """Returns the text of a page as those of documents are indexed: `title. text`, or the text without a title."""
    return f"{title}. {text}" if title else text


def document_id(url: str) -> str | None:
    """Returns the doc_id of an address, the same for all ways of writing it; None if it is none of the web."""
    normalised = normalised_url(url)
    return None if normalised is None else f"{PREFIX}{hashlib.sha256(normalised.encode()).hexdigest()[:24]}"


def is_page(doc_id: str) -> bool:
    """Returns True if a document is a page of the web."""
    return doc_id.startswith(PREFIX)


def normalised_url(url: str) -> str | None:
    """Returns an address without its scheme, fragment, usual port, marks of campaigns, and slash at the end.

    The host is in lower case, and what need not be quoted is not. None if it is no address of http.
    """
    try:
        parts = urlsplit(encodable(url).strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in _PORTS or not host:
        return None
    path = quote(unquote(parts.path, errors="surrogateescape"), safe=_UNRESERVED, errors="surrogateescape").rstrip("/")
    asked = [(name, value) for name, value in parse_qsl(parts.query, True) if not name.lower().startswith(_TRACKING)]
    query = f"?{urlencode(asked)}" if asked else ""
    return f"{host}{'' if port in (None, _PORTS[scheme]) else f':{port}'}{path}{query}"


def cut(text: str, characters: int, most_words: int | None = None) -> str:
    """Returns as much of a text as a provider takes, in whole words; the beginning of a word that is longer."""
    parts = text.split()[:most_words]
    ends = list(accumulate(len(part) + 1 for part in parts))  # of each word, with the space behind it
    whole = sum(end - 1 <= characters for end in ends)
    return " ".join(parts[: max(1, whole)])[:characters]


def _one_line(text: str) -> str:
    return encodable(" ".join(text.split()))
