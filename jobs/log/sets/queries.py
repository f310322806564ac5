"""The queries of a data set as a log: its files with their versions, and its rows.

TREC topics: `<top>` with tags that are not closed (ad hoc tracks), XML, and lines of id, tab and query.
Which of them a file is, its beginning says. The columns are `query_id`, `text`, and the topic's fields by the names of their
tags (`title`, `description`, `narrative`). `text` is the title or the query; of topics without either, their question or
description.
"""

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import LogError
from cluster.storage import FoundFile, files_at
from jobs.log.sets import irds
from jobs.log.sets.beir import judged_queries, split_of
from jobs.log.sets.names import SetName, table_of
from jobs.log.table_file import text_lines

_WHERE = "log.path"
Topic = dict[str, str | None]
_TAGS = {"desc": "description", "narr": "narrative", "con": "concepts", "smry": "summary", "dom": "domain"}
_LABELS = {  # words behind a tag that are no part of the field
    "num": "Number", "title": "Topic", "desc": "Description", "narr": "Narrative", "con": "Concepts?(?:\\(s\\))?",
    "smry": "Summary", "dom": "Domain", "fac": "Factors?(?:\\(s\\))?", "def": "Definitions?(?:\\(s\\))?", "nat": "Nationality",
    "time": "Time",
}  # fmt: skip
_IDS = ("number", "num", "id", "query_id", "qid", "topic_id")
_TEXTS = ("title", "query", "question", "text", "description", "summary")
_HEADERS = {"id", "_id", "qid", "query_id", "query-id", "topic", "topic_id"}
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)[^>]*>")


def query_files(name: SetName) -> list[FoundFile]:
    """Returns the files that decide which queries a set has, that of the queries first."""
    if name.kind == "irds":
        rows = irds.queries(name.rest, _WHERE)
        return [FoundFile(str(name), "", rows.nbytes, irds.content_hash(rows))]
    listed = []
    for path in split_of(name.rest, _WHERE) if name.kind == "beir" else (name.rest,):
        files = [file for file in files_at(path) if file.path == path]
        if not files:
            raise LogError("log-files", f"{_WHERE}: {path}: no such file; correct it")
        listed += files
    return listed


def set_queries(name: SetName) -> tuple[pa.Table, int]:
    """Returns the queries of a set as columns of text, and the number of those of other splits in the same file."""
    if name.kind == "irds":
        return irds.queries(name.rest, _WHERE), 0
    if name.kind == "topics":
        return topics(name.rest), 0
    return judged_queries(*split_of(name.rest, _WHERE))


def topics(path: str) -> pa.Table:
    """Returns the topics of a file in its order."""
    lines = list(text_lines(path))
    text = "\n".join(line for _, line in lines)
    if re.search(r"^\s*<top\s*>", text, re.IGNORECASE | re.MULTILINE):
        parsed = list(_of_tags(text, path))
    elif text.lstrip().startswith("<"):
        parsed = list(_of_xml(text, path))
    else:
        parsed = list(_of_lines(lines, path))
    if not parsed:
        raise LogError("log-files", f"log file {path}: holds no topics; name another")
    rows = [topic | {"text": next((topic[name] for name in _TEXTS if topic.get(name)), None)} for topic in parsed]
    table = table_of(rows)
    if table.column("text").null_count == len(table):  # so that the line about the column says which there are
        table = table.drop_columns(["text"])
    return table


def _of_tags(text: str, path: str) -> Iterator[Topic]:
    """Yields topics whose tags begin fields and need not be closed."""
    for number, whole in enumerate(re.split(r"(?i)<top\s*>", text)[1:], 1):
        fields: dict[str, list[str]] = {}
        tag, at = "", 0
        body = re.split(r"(?i)</top\s*>", whole)[0]
        for match in _TAG.finditer(body):
            if match[2].lower() not in _LABELS and body[: match.start()].rpartition("\n")[2].strip():
                continue  # in the middle of a text
            fields.setdefault(tag, []).append(body[at : match.start()])
            tag, at = "" if match[1] else match[2].lower(), match.end()
        fields.setdefault(tag, []).append(body[at:])
        values = {tag: _plain(tag, " ".join(parts)) for tag, parts in fields.items() if tag}
        query_id = values.pop("num", "")
        if not query_id:
            raise LogError("log-files", f"log file {path}, topic {number}: has no <num>; give it one")
        yield {"query_id": query_id, **{_TAGS.get(tag, tag): value or None for tag, value in values.items()}}


def _plain(tag: str, text: str) -> str:
    """Returns the text of a field without its label, in one line."""
    plain = " ".join(html.unescape(text).split())
    return re.sub(rf"^{_LABELS[tag]}\s*:\s*", "", plain, flags=re.IGNORECASE) if tag in _LABELS else plain


def _of_xml(text: str, path: str) -> Iterator[Topic]:
    """Yields the elements below the root: their id is an attribute or an element, the others are fields."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise LogError("log-files", f"log file {path}: is not XML: {one_line(error)}; correct it") from error
    for number, entry in enumerate(root, 1):
        fields: dict[str, list[str]] = {}
        for element in entry:
            fields.setdefault(element.tag, []).append(" ".join("".join(element.itertext()).split()))
        values: dict[str, str] = {tag: "; ".join(filter(None, parts)) for tag, parts in fields.items()}
        given = {name: value.strip() for name, value in entry.attrib.items()} | values
        query_id = next((given[name] for name in _IDS if given.get(name)), None)
        if query_id is None:
            message = f"has no id (an attribute or element {', '.join(_IDS[:3])}); give it one"
            raise LogError("log-files", f"log file {path}, topic {number}: {message}")
        own = " ".join((entry.text or "").split())
        topic: Topic = {"query_id": query_id}
        if own:
            topic["text"] = own
        topic |= {name: value or None for name, value in given.items() if name not in _IDS}
        yield topic


def _of_lines(lines: list[tuple[int, str]], path: str) -> Iterator[Topic]:
    """Yields lines of id and query; a first line that names its columns is none."""
    for number, line in lines:
        query_id, tab, query = line.partition("\t")
        if not tab or not query_id.strip():
            message = f"is neither <top>, nor XML, nor id, tab and query; correct it: {line[:80]!r}"
            raise LogError("log-files", f"log file {path}, line {number}: {message}")
        if number == 1 and query_id.strip().lower() in _HEADERS:
            continue
        yield {"query_id": query_id.strip(), "text": query.strip()}
