"""README.md and docs/ speak of what exists: every path, link, verb and command; generated pages are fresh."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dmqr.arguments import VERB_NAMES, VERBS, function_of, parsed
from tests.support import pages

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
}


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> list[str]:
    """Returns every `dmqr VERB ...` of the pages' shell blocks."""
    lines = [line.partition(" > ")[0] for page in pages.PAGES for line in pages.commands(page)]
    return [line[line.index("dmqr ") :] for line in lines if re.match(r"(\w+=\w+ )*dmqr ", line)]


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


def test_every_key_has_a_meaning() -> None:
    assert not [row for row in PAGES["docs/config.md"].splitlines() if re.fullmatch(r"- `.*\): *", row)]


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


def test_the_readme_has_the_verbs_in_the_groups_of_the_command_line() -> None:
    named = re.findall(r"^- \*\*(.+)\*\*: (`.+`)$", README, re.MULTILINE)
    assert {title: tuple(re.findall(r"`([^`]+)`", text)) for title, text in named} == VERBS


@pytest.mark.parametrize("command", commands())
def test_every_command_can_be_typed(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    (verb,) = [verb for verb in VERB_NAMES if words[: len(verb.split())] == verb.split()]
    assert parsed(words)[0] is function_of(verb)


def test_there_are_commands() -> None:
    assert len(commands()) >= 40
