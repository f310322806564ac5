"""What tells providers apart: the request of a search, where the key goes, and how an answer is read.

Field names are those of SearXNG's `/search?format=json`, of Tavily's `POST /search` and of Brave's Web Search API.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from cluster.http import retry_after
from retrievers.served.server import bearer
from retrievers.web.hits import WebPage
from retrievers.web.settings import WebSettings

CHARACTERS = 400  # of a text: Tavily's and Brave's limit
_BRAVE_WORDS = 50
_MARKS = re.compile(r"</?strong>")

Request = tuple[str, dict[str, Any] | None]
"""Path with its query, and the JSON that is posted; None: it is gotten."""


class Provider(NamedTuple):
    """A provider's API."""

    request: Callable[[WebSettings, str], Request]  # of a text
    pages: Callable[[Any], list[WebPage]]  # of an answer, best first; raises ValueError, with the problem, if it is invalid
    words: int | None = None  # of a text at most; None: no limit
    key_header: Callable[[str], dict[str, str]] = bearer
    wait: Callable[[Mapping[str, str]], float | None] = retry_after  # seconds that the headers of a refusal ask to wait
    forbidden: str = ""  # what a 403 means where no key is asked for; "": that one is
    silent: Callable[[Any], str] = lambda _: ""  # the search engines that the server asked in vain, in words


def _searxng(settings: WebSettings, text: str) -> Request:
    asked = {"q": text, "format": "json"}
    return f"/search?{_query(asked | settings.args)}", None


def _searxng_pages(answer: Any) -> list[WebPage]:
    listed = _listed(answer, "results")
    if not listed and (silent := _searxng_silent(answer)):  # nothing was found, as nobody looked
        raise ValueError(f"none of its engines answered: {silent}")
    return [WebPage(_text(one, "url"), _text(one, "title"), _text(one, "content"), _number(one.get("score"))) for one in listed]


def _searxng_silent(answer: Any) -> str:
    listed = answer.get("unresponsive_engines")
    engines = [one if isinstance(one, list) else [one] for one in listed] if isinstance(listed, list) else []
    return ", ".join(" ".join(map(str, one)) for one in engines)


def _tavily(settings: WebSettings, text: str) -> Request:
    asked = {"query": text, "max_results": settings.results}
    return "/search", {name: value for name, value in (asked | settings.args).items() if value is not None}


def _tavily_pages(answer: Any) -> list[WebPage]:
    found = []
    for one in _listed(answer, "results"):
        text = _text(one, "raw_content") or _text(one, "content")
        found.append(WebPage(_text(one, "url"), _text(one, "title"), text, _number(one.get("score"))))
    return found


def _brave(settings: WebSettings, text: str) -> Request:
    asked = {"q": text, "count": settings.results, "text_decorations": "false"}
    return f"/res/v1/web/search?{_query(asked | settings.args)}", None


def _brave_pages(answer: Any) -> list[WebPage]:
    if isinstance(answer, dict) and "web" not in answer and answer.get("type") == "search":  # it found nothing
        return []
    found = []
    for one in _listed(answer.get("web") if isinstance(answer, dict) else None, "results"):
        snippets = one.get("extra_snippets")
        parts = [_text(one, "description"), *(snippets if isinstance(snippets, list) else [])]
        text = " ".join(str(part) for part in parts if part)
        found.append(WebPage(_text(one, "url"), _plain(_text(one, "title")), _plain(text)))
    return found


def _brave_wait(headers: Mapping[str, str]) -> float | None:
    """Returns the longest time until one of its limits that is used up begins anew: of a second and of a month, say."""
    asked = retry_after(headers)
    left, until = (headers.get(f"X-RateLimit-{name}", "").split(",") for name in ("Remaining", "Reset"))
    try:
        waits = [float(seconds) for count, seconds in zip(left, until, strict=True) if float(count) <= 0]
    except ValueError:
        return asked
    return max([asked or 0.0, *waits])


def _query(asked: Mapping[str, Any]) -> str:
    """Returns the query of a path; lists are separated by commas."""
    written = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
        for name, value in asked.items()
        if value is not None
    }
    return urlencode(written, errors="replace")


def _listed(answer: Any, name: str) -> list[dict[str, Any]]:
    listed = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"it has no list of {name}")
    return listed


def _text(page: Mapping[str, Any], name: str) -> str:
    value = page.get(name)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(text: str) -> str:
    """Returns a text of Brave's, which is HTML."""
    return html.unescape(_MARKS.sub("", text))


PROVIDERS = {
    "searxng": Provider(
        _searxng,
        _searxng_pages,
        silent=_searxng_silent,
        forbidden="it does not answer in JSON; add json to search.formats in its settings.yml",
    ),
    "tavily": Provider(_tavily, _tavily_pages),
    "brave": Provider(
        _brave, _brave_pages, _BRAVE_WORDS, key_header=lambda key: {"X-Subscription-Token": key}, wait=_brave_wait
    ),
}
