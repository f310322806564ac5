"""Markup around texts that nobody asked for: Markdown tables, XML elements, fences, emphasis."""

import re

from rewriters.reading.answer import label_key

ROW = re.compile(r"\s*\|(?P<cells>.+)\|\s*$")
_SEPARATOR = re.compile(r"\s*\|?(?:\s?:?-{2,}:?\s?\|)+\s?(?::?-{2,}:?\s?)?\|?\s*$")
_ELEMENT = re.compile(
    r"<(?P<tag>[A-Za-z][\w.:-]{0,40})(?P<attributes>(?:\s[^<>\n]{0,200})?)>(?P<content>[^<>]*)</(?P=tag)\s?>", re.IGNORECASE
)
_WHOLE = re.compile(
    r"\s*<(?P<tag>[A-Za-z][\w.:-]{0,40})(?:\s[^<>\n]{0,200})?>(?P<content>.*)</(?P=tag)\s?>\s*\Z", re.DOTALL | re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"=\s?[\"']([^\"']{1,60})[\"']")
_TAG = re.compile(r"</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>\n]{0,200})?/?>")
_BOXED = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]{2,2000})\}")
_EMPHASIS = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]{1,300}?)(?<=\S)\*\*(?![\w*])")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*(?P<language>[\w+#.-]*)\s*$")
_PROSE = {"", "text", "txt", "markdown", "md", "plaintext", "plain", "query", "queries", "json", "xml"}
_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def has_tags(text: str, query: str) -> bool:
    """Returns True if a text has tags, and the query has none."""
    return _TAG.search(text) is not None and _TAG.search(query) is None


def elements(text: str) -> list[tuple[list[str], str]]:
    """Returns the innermost XML elements that have text, in order: label keys of the tag and of attributes, and the text."""
    return [
        ([label_key(name) for name in (element["tag"], *_ATTRIBUTE.findall(element["attributes"]))], content)
        for element in _ELEMENT.finditer(text)
        if (content := " ".join(element["content"].split()))
    ]


def without_wrapper(text: str) -> str:
    """Returns the content of an element around the whole text, such as <answer>...</answer>; else the text."""
    for _ in range(3):
        whole = _WHOLE.match(text)
        if whole is None or re.search(rf"</{re.escape(whole['tag'])}\s?>", whole["content"], re.IGNORECASE):
            break
        text = whole["content"]
    return text


def is_page(text: str, query: str) -> bool:
    """Returns True if a text is a page of HTML, such as a server's message of an error; a query about HTML may get one."""
    return _PAGE.match(text) is not None and "html" not in query.casefold()


def final_box(text: str, query: str) -> str:
    r"""Returns the content of the last \boxed{...} of a text, as mathematical models mark their answer; else the text."""
    boxes = [] if "\\boxed" in query else _BOXED.findall(text)
    return boxes[-1] if boxes else text


def table(lines: list[str]) -> list[list[str]]:
    """Returns the rows of the first Markdown table, its head first, as cells without emphasis; empty without a table."""
    rows: list[list[str]] = []
    ruled = False
    for line in lines:
        if rows and _SEPARATOR.match(line):
            ruled = True
        elif row := ROW.match(line):
            rows.append([cell.strip(" *_`") for cell in row["cells"].split("|")])
        elif rows:
            break
    return rows if ruled and len(rows) > 1 else []


def code_lines(lines: list[str]) -> set[int]:
    """Returns the numbers of the lines within fenced code: blocks whose fence names a programming language."""
    inside, code = False, False
    numbers: set[int] = set()
    for at, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            if code:
                numbers.add(at)
            continue
        inside = not inside
        code = inside and fence["language"].casefold() not in _PROSE
    return numbers


def without_emphasis(text: str) -> str:
    """Returns a text without the marks of bold words."""
    return _EMPHASIS.sub(r"\1", text)
