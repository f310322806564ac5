"""README's "What can go wrong" names all that can be refused, and all that it names is said so, in one line, with a remedy."""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalogue_called import CALLED, Called
from catalogue_elastic import ELASTIC
from catalogue_engines import OTHERS
from catalogue_inputs import INPUTS
from catalogue_s3 import S3
from catalogue_typed import AFTERWARDS, Typed, good_job

from cluster.lease import HeldError
from jobs.__main__ import main
from jobs.refusal import REFUSALS
from jobs.run import Stopped
from retrievers.elastic_client import Refused

ROOT = Path(__file__).parents[1]
NAMES = {error.__name__ for error in (*REFUSALS, Stopped, Refused, HeldError)}
SAYS = {"error", "_error"}  # methods that make the error that is raised
TELLS = {"say", "exit"}
ACTS = (
    "add|build|change|convert|copy|correct|create|free|give|go on|grant|keep|leave|list|look at|lower|make"
    "|name|pip install|put|raise|remove|rename|renew|report|run|see|set|start|take|to accept it go on"
    "|to pay for all go on|try|use|wait|write"
)
REMEDY = re.compile(rf"; ({ACTS})\b|known: |known keys: |available: |there are: |should be ")
WRAPPERS = {
    # file: constants of a raise that only says where another refusal came from, or passes its whole text on
    "jobs/run.py": "",  # a refusal of the cluster once work has begun
    "rewriters/engines/recorded.py": "recorded completions |, line |: ",  # the file and line of a problem
    "rewriters/engines/server.py": "engine 'openai': | |***",  # the key struck out of a message
    "rewriters/strategy.py": ": |strategies/|.py",  # the file of a strategy that breaks a rule
    "retrievers/retriever.py": ": ",  # the key of the config
    "jobs/prepare.py": "rewrite.strategies: ",
}


def catalogue() -> list[str]:
    """Every fragment of the README's tables, in their order."""
    section = (ROOT / "README.md").read_text().split("## What can go wrong\n")[1].split("\n## ")[0]
    cells = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)]
    return [fragment for cell in cells for fragment in re.findall(r"`([^`]+)`", cell)]


FRAGMENTS = catalogue()
TYPED = [*INPUTS, *OTHERS]
MET = [*CALLED, *S3, *ELASTIC]


# ---------------------------------------------------------------- what the code says


Scope = list[tuple[str, ast.expr]]


class Module:
    """A file of the product: its functions, and what stands in its own names."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text())
        self.functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self.by_name = {function.name: (self, function) for function in self.functions}
        self.names: Scope = [pair for node in tree.body if isinstance(node, ast.Assign) for pair in _assigned(node)]


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                yield from ((name.id, inner.value) for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(inner, ast.NamedExpr):
            yield inner.target.id, inner.value


MODULES = [
    Module(path)
    for package in ("jobs", "rewriters", "retrievers", "cluster")
    for path in sorted((ROOT / package).rglob("*.py"))
]
EVERYWHERE = {name: found for module in MODULES for name, found in module.by_name.items()}


def texts(node: ast.AST, module: Module, scope: Scope, depth: int = 4) -> Iterator[str]:
    """The constant texts of an expression, and of the names and functions that it is made of."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
        elif depth and isinstance(inner, ast.Name):
            for name, value in [*scope, *module.names]:
                if name == inner.id and value is not node:
                    yield from texts(value, module, scope, depth - 1)
        elif depth and isinstance(inner, ast.Call) and _called(inner) not in SAYS:
            home, function = module.by_name.get(_called(inner)) or EVERYWHERE.get(_called(inner)) or (module, None)
            for part in ast.walk(function) if function is not None else ():
                if isinstance(part, ast.Return) and part.value is not None:
                    yield from texts(part.value, home, list(_assigned(function)), depth - 1)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def sites(kinds: set[str]) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and the constant texts of every place where something of `kinds` is made or said."""
    for module in MODULES:
        for function in module.functions:
            scope = list(_assigned(function))
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _called(node) in kinds:
                    said = [text for part in node.args for text in texts(part, module, scope)]
                    yield f"{module.name}:{node.lineno}", said


def raises() -> list[tuple[str, list[str]]]:
    """Where something is refused, but for the wrappers."""
    config = [site for site in sites({"ValueError"}) if site[0].startswith(("jobs/config.py", "jobs/retriever_config.py"))]
    return [site for site in [*sites(NAMES | SAYS), *config] if not _wraps(*site)]


def _wraps(place: str, said: list[str]) -> bool:
    return WRAPPERS.get(place.partition(":")[0]) == "|".join(said)


def test_every_refusal_is_in_the_catalogue() -> None:
    places = raises()
    assert len(places) > 150
    assert [(place, said) for place, said in places if not any(one in text for one in FRAGMENTS for text in said)] == []


def test_every_row_of_the_catalogue_is_said_somewhere() -> None:
    said = [text for _, found in [*raises(), *sites(TELLS)] for text in found]
    assert [fragment for fragment in FRAGMENTS if not any(fragment in text for text in said)] == []


def test_rows_and_triggers_belong_together() -> None:
    triggers = {case.fragment for case in [*TYPED, *MET]}
    assert len(set(FRAGMENTS)) == len(FRAGMENTS)
    assert (triggers - set(FRAGMENTS), set(FRAGMENTS) - triggers) == (set(), set())


# ---------------------------------------------------------------- and that it says so


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    good_job(folder)
    return folder


@pytest.fixture
def job(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current folder is a small job that would run; log files go elsewhere."""
    here = tmp_path / "here"
    shutil.copytree(good, here)
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with AFTERWARDS:
        yield


def files() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


def check(line: str, fragment: str) -> None:
    assert fragment in line
    assert "\n" not in line
    assert "Traceback" not in line
    assert REMEDY.search(line), line


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("case", TYPED, ids=[case.fragment[:40] for case in TYPED])
def test_what_is_typed(case: Typed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    case.spoil(monkeypatch)
    before = files()
    try:
        code: object = main(case.arguments)
    except SystemExit as end:
        code = end.code
    printed = capfd.readouterr()
    assert (code, printed.out) == (case.code, "")
    said = [line for line in printed.err.splitlines() if line.startswith("dmqr")]
    assert said == printed.err.splitlines()[-1:]
    check(said[0], case.fragment)
    assert files() == before


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("case", MET, ids=[case.fragment[:40] for case in MET])
def test_what_is_met_later(case: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((*REFUSALS, Stopped)) as refused:
        case.call(monkeypatch)
    check(str(refused.value), case.fragment)
