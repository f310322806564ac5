"""The README and docs/ speak of what is there: every path, link, verb, command, table and column."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from dmqr.arguments import VERB_NAMES, function_of, parsed
from jobs.tables import COMPLETIONS, OPTIONAL_QUERIES, SOURCE, STORED, WEB_ANSWERS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
}
ALL = "\n".join(PAGES.values())
MOST_LINES = 200
TABLES = {**STORED, "queries": [*STORED["queries"], *OPTIONAL_QUERIES], "completions": COMPLETIONS, "web_answers": WEB_ANSWERS}
SOURCES = "Fields of `sources`:"


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> list[str]:
    """Every `dmqr VERB ...` of the pages' shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", ALL, re.MULTILINE | re.DOTALL)
    lines = [command.strip() for block in blocks for line in block.splitlines() for command in line.split("&&")]
    return [line for line in lines if re.match(r"(\.venv/bin/)?dmqr ", line)]


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


def test_every_key_has_a_meaning() -> None:
    assert not [row for row in PAGES["docs/config.md"].splitlines() if re.fullmatch(r"\| `.*\|\s*\|", row)]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    for path in re.findall(r"`((?:jobs|rewriters|retrievers|cluster|configs|tests|docs)/[^`*<> ]*)`", PAGES[page]):
        braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
        names = [braces[1] + one + braces[3] for one in braces[2].split(",")] if braces else [path]
        for name in names:
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page]):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_every_verb_and_table_is_explained() -> None:
    for verb in {name.split()[0] for name in VERB_NAMES}:
        assert re.search(rf"^\| `dmqr {verb}(`| (\w+ )?(CONFIG|RUN|SET))", README, re.MULTILINE), verb
    for table in STORED:
        assert re.search(rf"^\|[^|]*`{table}/`[^|]*\|", README, re.MULTILINE), table


@pytest.mark.parametrize("command", commands())
def test_every_command_can_be_typed(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    (verb,) = [verb for verb in VERB_NAMES if words[: len(verb.split())] == verb.split()]
    assert parsed(words)[0] is function_of(verb)


def test_there_are_commands() -> None:
    assert len(commands()) >= 5


def documented(part: str) -> list[tuple[str, str]]:
    """The names and types of the rows of a part of docs/tables.md."""
    return re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", part, re.MULTILINE)


def as_documented(fields: Iterable[pa.Field]) -> list[tuple[str, str]]:
    lists = {one.name: "struct" if pa.types.is_struct(one.type.value_type) else str(one.type.value_type)
             for one in fields if pa.types.is_list(one.type)}  # fmt: skip
    words = {name: f"list of {kind}" for name, kind in lists.items()}
    words |= {one.name: "map of text" for one in fields if pa.types.is_map(one.type)}
    return [(one.name, words.get(one.name, str(one.type))) for one in fields]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_documented(table: str) -> None:
    section = PAGES["docs/tables.md"].split(f"\n## `{table}/`\n")[1].split("\n## ")[0]
    assert documented(section.split(SOURCES)[0]) == as_documented(TABLES[table])


def test_every_column_has_a_meaning() -> None:
    assert [row for row in PAGES["docs/tables.md"].splitlines() if re.match(r"\| `\w+` \| [\w ]+ \| *\|", row)] == []


def test_every_field_of_a_source_is_documented() -> None:
    assert documented(PAGES["docs/tables.md"].split(SOURCES)[1].split("\n## ")[0]) == as_documented(SOURCE)
