"""Every error is one line with a code and a remedy; every code is raised, tried here, and explained in docs/errors.md."""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobs.export.checks  # noqa: F401 - has a subclass
import retrievers.elastic.connection  # noqa: F401 - has a subclass
from cluster.errors import CODES, DmqrError, UnavailableError, nearest
from jobs.__main__ import main
from jobs.config.load import _CODES as CODES_OF_VALIDATION
from tests.support.errors.error_calls import CALLS, Call
from tests.support.errors.error_commands import COMMANDS, SYSTEM
from tests.support.errors.small_job import AFTERWARDS, Command, small_job

ROOT = Path(__file__).parents[1]
REMEDY = re.compile(
    r"; (add|build|change|convert|copy|correct|create|free|give|grant|keep|leave|look at|lower|make|name|pip install"
    r"|put|raise|remove|rename|renew|report|restore|resume|retry|run|see|set|start|take"
    r"|to (accept them|pay for all shards), resume|try|use|wait|write)\b"
    r"|\(known|should be "
)
PASSED_ON = {  # the code of another error
    "error.code", "code", "*problem(path, error)", "*problem(where, error)", "*fatal_status(status, url, answer, self._key)"
}  # fmt: skip


def subclasses(kind: type[DmqrError]) -> Iterator[type[DmqrError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def first_arguments() -> Iterator[tuple[str, ast.expr]]:
    """`file:line` and the first argument of every error that is made in the packages."""
    names = {kind.__name__ for kind in subclasses(DmqrError)} - {"RequestRefused"}  # that one knows its code
    for package in ("dmqr", "jobs", "rewriters", "retrievers", "cluster"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in names | {"self.error", "file.error"}:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[0]


def test_every_error_is_made_with_a_code_and_every_code_is_used() -> None:
    found = list(first_arguments())
    literal = {place: arg.value for place, arg in found if isinstance(arg, ast.Constant)}
    assert len(literal) > 200
    assert {place: code for place, code in literal.items() if code not in CODES} == {}
    rest = {place: ast.unparse(arg) for place, arg in found if not isinstance(arg, ast.Constant)}
    assert {place: arg for place, arg in rest.items() if arg not in PASSED_ON} == {}
    used = {*literal.values(), *CODES_OF_VALIDATION.values(), UnavailableError.code}
    assert set(CODES) - used == set()


def test_every_code_is_tried() -> None:
    assert set(CODES) == {case.code for case in [*COMMANDS, *CALLS]}


def test_codes_are_words_and_what_is_said_of_them_are_sentences() -> None:
    for code, said in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)?", code)
        assert all(re.fullmatch(r"[^\n]+\.", text) for text in said), code


@pytest.mark.parametrize(
    ("name", "known", "end"),
    [
        ("dept", ["k", "depth"], "; did you mean 'depth'? (known: k, depth)"),
        ("QUERY", ["Query"], "; did you mean 'Query'? (known: Query)"),
        ("zzz", {"b", "a"}, " (known: a, b)"),
        ("zzz", [], " (known: none)"),
        ("13", [str(n) for n in range(26)], f"; did you mean '13'? (known: {', '.join(map(str, range(24)))} and 2 more)"),
    ],
)
def test_unknown_names(name: str, known: list[str], end: str) -> None:
    assert nearest(name, known) == end


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    small_job(folder)
    return folder


@pytest.fixture
def here(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current folder is a small job that would run; log files go elsewhere."""
    shutil.copytree(good, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with AFTERWARDS:
        yield


def files() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


def check(line: str, words: str) -> None:
    assert words in line
    assert "\n" not in line
    assert "Traceback" not in line
    assert REMEDY.search(line), line


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", [*COMMANDS, *SYSTEM], ids=lambda case: f"{case.code} {case.words}"[:50])
def test_commands(case: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    case.spoil(monkeypatch)
    before = files()
    try:
        code: object = main(case.arguments)
    except SystemExit as end:
        code = end.code
    printed = capfd.readouterr()
    assert (code, printed.out) == (case.exit_code, ""), printed.err[-3000:]
    said = [line for line in printed.err.splitlines() if line.startswith("dmqr")]
    assert said == printed.err.splitlines()[-1:]
    check(said[0], case.words)
    assert re.findall(r" \[([a-z-]+)\]$", said[0]) == ([case.code] if case.code else [])
    assert files() == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", CALLS, ids=lambda case: f"{case.code} {case.words}"[:50])
def test_calls(case: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DmqrError) as error:
        case.call(monkeypatch)
    assert (error.value.code, error.value.exit_code) == (case.code, case.exit_code)
    check(str(error.value), case.words)
    check_parts(error.value)


def check_parts(error: DmqrError) -> None:
    """An error has a place, what is wrong there, and a remedy; together they are its line."""
    place = f"{error.where}: " if error.where else ""
    assert str(error) in (f"{place}{error.what}; {error.remedy}", f"{place}{error.what}")
    assert error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("job.yaml: fuse.k: is no number; give one", ("job.yaml", "fuse.k: is no number", "give one")),
        ("s3://a/b: gone; it was there; start anew", ("s3://a/b", "gone; it was there", "start anew")),
        ("stopped; shards are kept; resume with: dmqr run", ("", "stopped; shards are kept", "resume with: dmqr run")),
        ("no table 'a' (known: b)", ("", "no table 'a' (known: b)", CODES["argument"][1])),
    ],
)
def test_the_parts_of_a_line(line: str, parts: tuple[str, str, str]) -> None:
    error = DmqrError("argument", line)
    assert (error.where, error.what, error.remedy) == parts
    check_parts(error)
