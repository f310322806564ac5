"""Reads a document of text, Markdown, HTML or PDF as pages of plain text."""

import io
import logging
import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

from cluster.cause import one_line
from cluster.errors import RetrieverError


class Page(NamedTuple):
    """A page of a document; one that has no pages is one, without a number."""

    number: int | None  # from 1
    text: str


class PlainDocument(NamedTuple):
    """A document as it was read."""

    title: str | None  # that it gives itself, not the name of its file
    pages: list[Page]  # in order; those without text, such as scanned ones, too


def read_document(name: str, data: bytes) -> PlainDocument:
    """Returns the title and the pages of a document, by the ending of its file's name."""
    return READERS[ending(name)](name, data)


def ending(name: str) -> str:
    """Returns the ending of a file's name, in lower case, with its dot; "": none that is read."""
    match = re.search(r"\.\w+$", name)
    return match[0].lower() if match and match[0].lower() in READERS else ""


def _plain(name: str, data: bytes) -> PlainDocument:
    return PlainDocument(None, [Page(None, _decoded(name, data))])


def _markdown(name: str, data: bytes) -> PlainDocument:
    from markdown_it import MarkdownIt

    front_matter = r"\A---\n(?=[^\n:]+:).*?\n(?:---|\.\.\.)(?:\n|\Z)"  # else the first line is a rule
    text = re.sub(front_matter, "", _decoded(name, data), flags=re.DOTALL)
    return _html(name, MarkdownIt("commonmark").enable("table").render(text))


def _html(_: str, html: str | bytes) -> PlainDocument:
    """Returns the text that a page of HTML shows, a line for each block; its title is <title>, else the first heading."""
    from bs4 import BeautifulSoup, CData, XMLParsedAsHTMLWarning
    from bs4.element import PreformattedString

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        soup = BeautifulSoup(html, "html.parser")  # bytes: it finds the encoding that the page declares
    titles = (one.get_text(" ", strip=True) for one in (soup.title, soup.h1) if one is not None)
    title = next((one for one in titles if one), None)
    for tag in soup(["script", "style", "template", "noscript", "head"]):
        tag.decompose()
    for text in soup.find_all(string=True):
        if isinstance(text, PreformattedString) and not isinstance(text, CData):  # comments, the doctype, instructions
            text.extract()
        elif text.find_parent("pre") is None:
            text.replace_with(re.sub(r"\s+", " ", str(text)))
    for tag in soup.find_all([*_LINES, *_BLOCKS, *_CELLS]):
        space = "\n" if tag.name in _LINES else " " if tag.name in _CELLS else "\n\n"
        tag.insert_before(space)
        if tag.name in _BLOCKS:
            tag.insert_after(space)
    lines = (" ".join(line.split()) for line in soup.get_text().split("\n"))
    return PlainDocument(title, [Page(None, re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip())])


_LINES, _CELLS = ("br", "dd", "dt", "li", "tr"), ("td", "th")
_BLOCKS = (
    "address", "article", "aside", "blockquote", "div", "dl", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4",
    "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul",
)  # fmt: skip


_DIVIDED = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])")  # a word at the end of a line


def _pdf(name: str, data: bytes) -> PlainDocument:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of each oddity that it can read past
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise RetrieverError("corpus", f"corpus {name}: needs a password; remove it, or leave the file out")
        pages = [Page(number, _DIVIDED.sub("", page.extract_text())) for number, page in enumerate(reader.pages, start=1)]
    except (PyPdfError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OSError) as error:
        reason = one_line(error, 200) or type(error).__name__
        problem = f"cannot be read as PDF: {reason}; mend it, or leave the file out"
        raise RetrieverError("corpus", f"corpus {name}: {problem}") from None
    return PlainDocument(None, pages)  # titles that PDFs have of their own are seldom those that they show


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start}); convert it, or leave the file out"
        raise RetrieverError("corpus", f"corpus {name}: {problem}") from None


READERS: dict[str, Callable[[str, bytes], PlainDocument]] = {
    ".txt": _plain, ".text": _plain, ".md": _markdown, ".markdown": _markdown, ".html": _html, ".htm": _html, ".xhtml": _html,
    ".pdf": _pdf,
}  # fmt: skip
