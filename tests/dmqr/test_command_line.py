"""The command line: verbs, exit codes, and one line on standard error instead of a trace."""

import errno
import inspect
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dmqr
from cluster.cause import cause
from cluster.errors import ConfigError
from dmqr.arguments import VERB_NAMES, documented, function_of, parsed, spelled
from dmqr.previews import told_apart
from jobs.__main__ import main

ROOT = Path(__file__).parents[2]


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that `main` says when it refuses."""
    code = main(arguments)
    printed = capfd.readouterr()
    assert code == 2
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["indx"], 'dmqr: Unknown command "indx". Did you mean "index"?'),
        (["help", "rnu"], 'dmqr: Unknown command "rnu". Did you mean "run"?'),
        (["run"], 'dmqr run: Command "run" parameter CONFIG requires an argument; see dmqr run --help'),
        (["run", "a.yaml", "b.yaml"], "dmqr run: Unused Tokens: ['b.yaml']; see dmqr run --help"),
        (["index", "--corpus", "a.parquet"], 'dmqr index: Command "index" parameter CONFIG requires an argument'),
        (["run", "config.yaml", "--sett", "a=b"], "dmqr run: Unknown option: --sett. Did you mean --set?"),
        (["runs", "config.yaml", "--last", "x"], 'dmqr runs: Invalid value for --last: unable to convert "x" into int'),
        (["try", "query alone"], "dmqr try: CONFIG is missing; give a YAML file, e.g. configs/quickstart.yaml"),
        (["try", "a.yaml", "two", "words"], "dmqr try: 'two', 'words': one QUERY is sent; put it in quotes; a config ends"),
        (["--print-completion", "bsh"], 'dmqr: Invalid value "bsh" for SHELL. Choose from: "bash", "zsh", "fish"'),
    ],
)
def test_refused_with_exit_code_2_and_one_line(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(arguments, capfd).startswith(words.format(here=tmp_path))


@pytest.mark.parametrize("verb", ["run", "plan", "index", "try"])
def test_settings_and_date_reach_every_verb(verb: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = {"index": ["--corpus", "c.parquet"], "try": ["a query"]}.get(verb, [])
    line = refused([verb, "job.yaml", *more, "--set", "fuse.dept=3"], capfd)
    assert "fuse.dept: unknown key; did you mean 'depth'?" in line
    assert "--date 'soon' is not a date" in refused([verb, "job.yaml", "--date", "soon", *more], capfd)


@pytest.mark.parametrize(
    ("words", "configs", "query"),
    [
        ("a.yaml q", ["a.yaml"], "q"),
        ("a.yaml --set b=c d.yaml q", ["a.yaml", "d.yaml"], "q"),
        ("a.yaml d.yaml --json q --set b=c", ["a.yaml", "d.yaml"], "q"),
        ("q a.yaml", ["a.yaml"], "q"),
        ("a.yaml", ["a.yaml"], None),
        ("a.yaml there d.yml", ["a.yaml", "there", "d.yml"], None),
        ("a.yaml -- -q", ["a.yaml"], "-q"),
        ("a.yaml folder", ["a.yaml"], "folder"),
        ("a.yaml 'what is b.yaml'", ["a.yaml"], "what is b.yaml"),
        (f"a.yaml {'q' * 300}", ["a.yaml"], "q" * 300),
    ],
)
def test_options_stand_anywhere_and_the_query_is_told_from_the_configs(
    words: str, configs: list[str], query: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("name: there")
    Path("folder").mkdir()
    _, given, named = parsed(["try", *shlex.split(words)])
    assert told_apart(given) == (configs, [] if query is None else [query])
    assert named == ({"b": "c"} if "--set" in words else {}) | ({"json": True} if "--json" in words else {})


def test_try_is_refused_without_a_query_before_an_index_is_built(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.try_one.trial.LoadedConfig.__init__", lambda *_: pytest.fail("a config was opened"))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert refused(["try", "job.yaml"], capfd).startswith("dmqr try: QUERY is missing; give it in quotes, as lines")
    with pytest.raises(ConfigError, match="query: is missing; give the query's text beside the config"):
        dmqr.try_query("job.yaml")


@pytest.mark.parametrize("words", [["--print-completion", "bash"], ["help"]])
def test_a_reader_that_goes_away_early_is_no_fault(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        command = [sys.executable, "-m", "jobs", *words]
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_breaks_elsewhere_is_a_failure(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("dmqr.previews.configured", broken)
    assert main(["plan", "job.yaml"]) == 1
    assert capfd.readouterr().err.startswith("dmqr plan: Broken pipe; the other end")


@pytest.mark.parametrize("words", [["help"], ["--help"], [], *(["help", *verb.split()] for verb in VERB_NAMES)])
def test_help_fits_a_terminal(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(words) == 0
    page = capfd.readouterr().out
    assert max(len(line) for line in page.splitlines() if not line.startswith("  dmqr ")) <= 80  # but for an example
    assert "\x1b" not in page
    if not words[1:]:
        assert [verb for verb in VERB_NAMES if f" {verb.split()[0]} " not in page] == []
        return
    function = function_of(" ".join(words[1:]))
    summary, _, example = documented(function)
    assert summary.splitlines()[0] in page
    assert example in " ".join(page.split())
    arguments = [one for one in inspect.signature(function).parameters.values() if one.name != "progress"]
    assert [one for one in map(spelled, arguments) if one not in page] == []


def test_help_imports_no_library_that_takes_long() -> None:
    slow = {"ray", "torch", "transformers", "pyarrow", "numpy", "duckdb", "pydantic", "yaml", "boto3"}
    code = "import sys\nfrom jobs.__main__ import main\nmain(['help', 'run'])\n"
    code += f"print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_run_is_done_even_if_its_report_cannot_be_written(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ["run", "job.yaml", "--set", "cluster.address=none", "--log", "json"]
    monkeypatch.setattr("jobs.pages.run.report", lambda *_, **__: 1 / 0)
    assert main(job) == 0
    printed = capfd.readouterr()
    folder = Path(printed.out.splitlines()[-1])
    (warning,) = [line for line in map(json.loads, printed.err.splitlines()) if line["event"] == "warning"]
    assert "the report was not written: division by zero" in warning["message"]
    assert warning["message"].partition("try again with: ")[2].endswith(f" report {folder}")
    assert "ZeroDivisionError" in warning["trace"]
    assert (folder / "_SUCCESS.json").exists()
    (log,) = (folder / "logs").glob("*.jsonl")
    assert log.read_text() == printed.err
    assert main(["runs", str(folder)]) == 0
    assert "finished" in capfd.readouterr().out
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert main(["report", str(folder)]) == 0
    assert capfd.readouterr().out == f"{folder}/report.html\n"
    # What was reported before the end is not what the finished run names.
    (folder / "report.html").write_text("of a moment before the end")
    (folder / "_SUCCESS.json").unlink()
    assert main(job) == 0
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_an_interpreter_without_our_packages_says_so_in_one_line(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    bare = [sys.executable, "-S", "-m", "jobs", "run", "config.yaml"]  # as `python` of a node whose environment is not active
    done = subprocess.run(bare, cwd=root, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dmqr run: {sys.executable}: has no package ")
    assert line.endswith("or submit with --pip [package-missing]")


def test_what_a_worker_was_refused_is_said_before_what_lies_beneath_it() -> None:
    raised = (
        "\x1b[36mray::MapWorker()\x1b[39m\n"
        "httpx.ConnectError: [Errno -2] Name or service not known\n\nThe above exception was the direct cause of ...:\n\n"
        "  File 'engine.py', line 1, in _load\n"
        "cluster.errors.RewriterError: engine 'vllm': a/b cannot be loaded: OSError: no connection; correct rewrite.engine\n"
    )
    assert cause(RuntimeError(raised)) == "engine 'vllm': a/b cannot be loaded: OSError: no connection; correct rewrite.engine"
    assert cause(RuntimeError("ray.exceptions.RayTaskError: a\nZeroDivisionError: by zero")) == "ZeroDivisionError: by zero"
    away = "ray::MapWorker(Score) (pid=7)\nretrievers.served.server.ServerAway: no valid answer from http://a; start it"
    assert cause(RuntimeError(away)) == "no valid answer from http://a; start it"


def test_an_address_stays_as_it_is_typed() -> None:
    words = ["index", "configs/a.yaml", "--corpus", "s3://bucket/a//b", "s3://c/"]
    assert parsed(words)[1:] == ([words[1], ["s3://bucket/a//b", "s3://c/"]], {})
    words = ["index", "a.yaml", "--set", "corpus={id_column: id}", "--corpus", "b.csv"]
    assert parsed(words)[1:] == (["a.yaml", ["b.csv"]], {"corpus": {"id_column": "id"}})
