"""README.md and docs/ speak of what exists, and every block does what it shows: commands, SQL and Python run, YAML is read.

A page's blocks run from top to bottom in a folder with the configs, a log, a corpus and a finished run of the quickstart,
which searches by BM25 alone. A server of an LLM stands where the pages name one on this machine.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dmqr
from dmqr.arguments import VERB_NAMES, VERBS, function_of, parsed
from jobs.__main__ import main
from jobs.chain.arms.arms import arms_of
from jobs.config.load import load_config
from tests.support.jobs.whole_runs import PATIENCE, ROOT, rows
from tests.support.plugins import forget
from tests.support.rewriters.fake_server import FakeServer

QUICKSTART = "configs/quickstart.yaml"
MARKDOWN = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
}
PAGES = {name: text for name, text in MARKDOWN.items() if name == "README.md" or name.startswith("docs/")}
LANGUAGES = {"bash", "python", "sql", "yaml", "text", "toml"}
MADE_HERE = {"README.md", "docs/quickstart.md"}  # pages that start without a run
SLOW = {"docs/quickstart.md", "docs/python.md", "docs/ablations.md", "docs/operations.md", "docs/clusters.md"}
NOT_RUN = {
    r"python3\.11 -m venv|pip install|python -m pytest -n 4$": "environments are made by .ci/run",
    r"docker |ray |kubectl |RAY_AUTH_MODE=token": "needs Docker, Kubernetes or machines of a cluster",
    r"uv pip compile|cp cluster/constraints": "tests/cluster/test_deployment.py resolves the pins",
    r"dmqr (index|plan|run|submit|logs|stop) configs/nightly\.yaml(?!.*--render)":
        "needs S3, Elasticsearch and a cluster: tests/jobs/whole_runs/test_nightly.py",
    r"dmqr \w+ (existing|configs/elastic)\.yaml": "needs Elasticsearch: tests/jobs/whole_runs/test_nightly.py",
}  # fmt: skip
"""Commands that are not run -> why."""
SERVERS = re.compile(r"http://localhost:\d+/v1")
ANSWER = {name: f"{name} words about tea" for name in ("general", "keyword", "pseudo_answer", "core_content")}


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file that it is, if its first line names one."""

    language: str
    text: str
    file: str | None


def blocks(page: str) -> Iterator[Block]:
    """Yields the blocks of a page in order."""
    for language, text in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", PAGES[page], re.MULTILINE | re.DOTALL):
        named = re.match(r"# ([\w./-]+\.(?:py|yaml))\n", text)
        yield Block(language, text, named[1] if named else None)


def commands(page: str) -> list[str]:
    """Returns the lines of the page's shell blocks, without comments."""
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.text.splitlines()]
    return [command for line in lines if (command := re.sub(r" +#.*| *^#.*", "", line).strip())]


def fragments(text: str) -> list[dict[str, object]]:
    """Returns the parts of a config in a block; a section that stands there again begins another part."""
    parts: list[list[str]] = [[]]
    seen: set[str] = set()
    for line in text.splitlines():
        section = re.match(r"(\w+):", line)
        if section and section[1] in seen:
            parts.append([])
            seen.clear()
        seen |= {section[1]} if section else set()
        parts[-1].append(line)
    return [yaml.safe_load("\n".join(part)) for part in parts]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the configs, a log, a corpus and a finished run of the quickstart by BM25 alone."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "configs", folder / "configs")
    shutil.copytree(ROOT / "cluster" / "kuberay", folder / "cluster" / "kuberay")
    for path in (QUICKSTART, "configs/ablate.yaml"):
        values = yaml.safe_load((folder / path).read_text())
        del values["retrieve"]["retrievers"]["dense"]
        values["retrieve"]["store"] = True  # as lists of dense search are kept
        (folder / path).write_text(yaml.safe_dump(values))
    pq.write_table(
        pa.table({"query": ["how hot should tea be", "Tea", "tea ", " ", "light of a lamp at sea"]}), folder / "log.parquet"
    )
    (folder / "corpus.csv").write_text("id,body\n7,Green tea is brewed below boiling.\n8,Bread rises.\n")
    texts = ["The lamp of a lighthouse sends light over the sea.", "Bread and yeast.", "Tea at sea."]
    pq.write_table(
        pa.table({"doc_id": ["a", "b", "c"], "title": ["Lamp", "Bread", "Tea"], "text": texts}), folder / "corpus.parquet"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dmqr.run(QUICKSTART, cluster__address="none")
    return folder


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["Qwen/Qwen3-8B", "qwen3:8b"], text=lambda _: json.dumps(ANSWER)) as started:
        yield started


@pytest.fixture
def walker(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FakeServer, capfd: pytest.CaptureFixture[str]
) -> Iterator[Walker]:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield Walker(server.address, monkeypatch, capfd)
    forget("shares", "echo", "overlap")


class Walker:
    """Does what blocks show, in the current folder; keeps what blocks of Python print, which is nothing on standard error."""

    def __init__(self, server: str, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self._server, self._patch, self._output = server, patch, output
        self.printed = ""
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def block(self, block: Block) -> None:
        """Does one block."""
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(SERVERS.sub(self._server, block.text))
            if re.search(r"^log:", block.text, re.MULTILINE):
                arms_of(load_config(block.file))
        elif block.language == "bash":
            for line in block.text.splitlines():
                self.command(line)
        elif block.language == "python":
            self._output.readouterr()
            exec(compile(block.text, "block", "exec"), self._names)
            printed = self._output.readouterr()
            assert printed.err == ""
            self.printed += printed.out
        elif block.language == "sql":
            with duckdb.connect() as connection:
                assert connection.execute(block.text).fetchone() not in (None, (0,))  # rows, or how many were written
        elif block.language == "yaml":
            for part in fragments(block.text):
                self.fragment(part)

    def command(self, line: str) -> None:
        """Runs a command, unless `NOT_RUN` has it."""
        words = shlex.split(line, comments=True)
        if not words or any(re.match(pattern, line) for pattern in NOT_RUN):
            return
        if words[0] == "export":
            for word in (word for word in words[1:] if "=" in word):
                self._patch.setenv(*word.split("=", 1))
            return
        words = [found for word in words for found in (sorted(glob.glob(word)) if "*" in word else [word])]
        if words[0] == "dmqr":
            if ">" in words:
                words = words[: words.index(">")]
            assert main(words[1:]) == 0, line
            return
        assert words[:2] == ["python", "-m"], f"neither run nor refused for a reason: {line}"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, *words[1:], "-p", "no:cacheprovider"],
            env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]

    def fragment(self, part: dict[str, Any]) -> None:
        """Reads a part of a config, put into the quickstart's."""
        values = yaml.safe_load((ROOT / QUICKSTART).read_text()) | {"rerank": {"kind": "cross_encoder"}}
        for section, value in part.items():
            old = values.get(section)
            values[section] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
        if set(part.get("corpus", ())) - {"path", "id_column", "title_column", "text_column", "split"}:
            values["corpus"] = part["corpus"]
        Path("fragment.yaml").write_text(yaml.safe_dump(values))
        arms_of(load_config("fragment.yaml"))


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in PAGES])
def test_the_blocks_of_a_page(page: str, walker: Walker, tmp_path: Path) -> None:
    if page in MADE_HERE:
        shutil.rmtree("runs")
        shutil.rmtree("index")
    for block in blocks(page):
        assert block.language in LANGUAGES, block
        walker.block(block)
    if page == "README.md":
        (run,) = Path("runs").glob("mine-*")
        assert (run / "_SUCCESS.json").exists()
        assert len(rows(run, "rewrites")) == 12  # of three distinct queries
    if page == "docs/python.md":
        assert re.search(r"runs/quickstart-[0-9a-f]{12} finished\n", walker.printed)
        assert "did you mean 'method'? (known: " in walker.printed
        strategies = re.findall(r"^(\w+) 1\.0 \S", walker.printed, re.MULTILINE)
        assert strategies == ["general", "keyword", "pseudo_answer", "core_content"]
        assert "\nevaluating and writing the report 1.0\n" in walker.printed  # of the run that was finished before


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_every_reason_not_to_run_has_a_command(pattern: str) -> None:
    assert any(re.match(pattern, command) for page in PAGES for command in commands(page))


def test_a_recipe_is_one_block_of_at_most_twenty_lines() -> None:
    recipes = PAGES["docs/results-and-tables.md"].split("\n## Recipes\n")[1].split("\n## ")[0]
    sections = [section.partition("\n") for section in re.split(r"^### ", recipes, flags=re.MULTILINE)[1:]]
    found = {title: re.findall(r"^```(?:python|sql)\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for title, _, text in sections}
    assert len(found) >= 10
    assert not {title: texts for title, texts in found.items() if len(texts) != 1 or texts[0].count("\n") > 20}


def test_the_documentation_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 130
    pages = {page: len(text.split()) for page, text in PAGES.items() if page != "README.md"}
    assert len(pages) <= 12
    assert sum(pages.values()) <= 35_000
    assert pages["docs/operations.md"] <= 5_000


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_key_has_a_meaning() -> None:
    assert not [row for row in MARKDOWN["docs/config.md"].splitlines() if re.fullmatch(r"- `.*\): *", row)]


@pytest.mark.parametrize("page", MARKDOWN)
def test_every_path_exists(page: str) -> None:
    for path in re.findall(r"`((?:jobs|rewriters|retrievers|cluster|configs|tests|docs)/[^`*<> ]*)`", MARKDOWN[page]):
        braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
        names = [braces[1] + one + braces[3] for one in braces[2].split(",")] if braces else [path]
        for name in names:
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", MARKDOWN)
def test_every_link_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", MARKDOWN[page]):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_every_picture_is_shown_made_by_the_script_and_small() -> None:
    shown = {page: re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text) for page, text in MARKDOWN.items()}
    there = set((ROOT / "docs/images").iterdir())
    assert there == {(ROOT / page).parent.joinpath(path).resolve() for page, paths in shown.items() for path in paths}
    script = (ROOT / "docs/pictures.py").read_text(encoding="utf-8")
    assert {path.name for path in there} == set(re.findall(r'IMAGES / "([^"]+)"', script))
    assert {path.name: path.stat().st_size for path in there if path.stat().st_size >= 150_000} == {}
    first_screen = "\n".join(PAGES["README.md"].splitlines()[:12])
    assert re.findall(r"\]\(docs/images/([^)]+)\)", first_screen) == ["terminal.svg", "report.png"]


def test_the_readme_has_the_verbs_in_the_groups_of_the_command_line() -> None:
    named = re.findall(r"^- \*\*(.+)\*\*: (`.+`)$", PAGES["README.md"], re.MULTILINE)
    assert {title: tuple(re.findall(r"`([^`]+)`", text)) for title, text in named} == VERBS


@pytest.mark.parametrize(
    "command", [line for page in PAGES for line in commands(page) if "dmqr " in line and "docker" not in line]
)
def test_every_command_can_be_typed(command: str) -> None:
    words = shlex.split(command[command.index("dmqr ") :].partition(" > ")[0])[1:]
    (verb,) = [verb for verb in VERB_NAMES if words[: len(verb.split())] == verb.split()]
    assert parsed(words)[0] is function_of(verb)
