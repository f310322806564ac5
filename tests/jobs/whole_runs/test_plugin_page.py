"""Examples of docs/python.md, line by line, and a retriever of the user's own in whole runs: store, other code, no code."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.__main__ import main
from jobs.runs.folder import open_run
from tests.support.jobs.nights import log
from tests.support.jobs.whole_runs import rows
from tests.support.plugins import PAGE, forget, page_file

QUERIES = ["light of a lighthouse lamp at sea", "wild yeast and bread", "the moon and the sea", "zzz"]
LINES = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]  # fmt: skip
Dmqr = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> Path:
    """The files of the page beside a log and a corpus, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("overlap.py", "own.yaml", "shares.py", "shares.yaml", "echo.py", "echo.yaml"):
        (tmp_path / name).write_text(page_file(name))
    log(QUERIES)
    (tmp_path / "corpus.parquet").write_bytes(corpus.read_bytes())
    return tmp_path


@pytest.fixture
def dmqr(place: Path, capsys: pytest.CaptureFixture[str]) -> Dmqr:
    """Runs a verb in this process; returns what it prints."""

    def run(*words: str) -> str:
        code = main([*words])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out.strip()

    return run


@pytest.fixture
def shown(dmqr: Dmqr) -> Callable[[str], list[str]]:
    """Runs the lines of the page that name a config, in this process; returns what each prints."""

    def run(config: str) -> list[str]:
        found = [shlex.split(line)[1:] for line in LINES if f" {config}" in line]
        return [dmqr(*words, *(() if words[0] == "index" else ("--set", "cluster.address=none"))) for words in found]

    return run


def folder_of(said: str) -> Path:
    return Path(said.splitlines()[-1])


def queries_of(folder: Path) -> dict[str, str]:
    return {row["query_id"]: row["query"] for row in rows(folder, "queries")}


def own_lists(folder: Path) -> dict[str, list[tuple[str, float]]]:
    """Query -> the hits of the own retriever."""
    hits = sorted((row for row in rows(folder, "runs") if row["retriever"] == "overlap"), key=lambda row: row["rank"])
    found = queries_of(folder)
    return {text: [(row["doc_id"], row["score"]) for row in hits if row["query_id"] == key] for key, text in found.items()}


def by_hand(passages: dict[str, str], least: int) -> dict[str, list[tuple[str, float]]]:
    """The same by another way."""
    held = {doc_id: set(re.split(r"\W+", text.lower())) - {""} for doc_id, text in passages.items()}
    counted = {query: [(one, float(len(set(query.split()) & words))) for one, words in held.items()] for query in QUERIES}
    return {q: sorted((h for h in hits if h[1] >= least), key=lambda h: (-h[1], h[0])) for q, hits in counted.items()}


def test_a_retriever(shown: Callable[[str], list[str]], passages: dict[str, str]) -> None:
    _, tried, first, second = shown("own.yaml")
    assert "overlap" in tried
    assert (own_lists(folder_of(first)), own_lists(folder_of(second))) == (by_hand(passages, 2), by_hand(passages, 1))


@pytest.mark.slow
def test_a_reranker(shown: Callable[[str], list[str]], dmqr: Dmqr, passages: dict[str, str]) -> None:
    dmqr("index", "shares.yaml", "--corpus", "corpus.parquet")
    tried, run, ablated = shown("shares.yaml")
    assert "Coverage (replace)" in tried
    folder = folder_of(run)
    for row in rows(folder, "scores"):
        words = [word for word in queries_of(folder)[row["query_id"]].split() if len(word) >= 4]
        wanted = sum(word in passages[row["doc_id"]].lower() for word in words) / max(1, len(words))
        assert row["score"] == pytest.approx(wanted)
    arms = {one["name"] for one in open_run(ablated.splitlines()[-1]).record["ablation"]["arms"]}
    assert {"fused", "least=1"} <= arms


def test_an_engine(shown: Callable[[str], list[str]], dmqr: Dmqr) -> None:
    dmqr("index", "shares.yaml", "--corpus", "corpus.parquet")
    (run,) = shown("echo.yaml")
    folder = folder_of(run)
    found = {(queries_of(folder)[row["query_id"]], row["text"], row["model"]) for row in rows(folder, "rewrites")}
    assert (QUERIES[1], f"{QUERIES[1]} again", "echo-2") in found


def test_the_index_is_built_once_for_a_corpus(place: Path, dmqr: Dmqr) -> None:
    command = ["index", "own.yaml", "--corpus", "corpus.parquet"]
    assert "overlap: 8 documents, built" in dmqr(*command)
    assert "overlap: 8 documents, exists already" in dmqr(*command)
    (place / "overlap.py").write_text(page_file("overlap.py").replace("def build_index", "def build_no_index"))
    forget("overlap")
    assert "overlap.py has no build_index, so its index is built elsewhere" in dmqr(*command)
