"""An index that is not in a folder is compared with the corpus that a config names, by the note that it keeps."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetrieverError
from jobs.config.load import load_config
from jobs.index import compare
from jobs.index import index as index_module
from jobs.index.index import index, ready_indexes
from jobs.terminal.live_display import LiveDisplay
from tests.support.plugins import page_file
from tests.support.retrievers.elastic_server import ask

ROWS = {"doc_id": ["a", "b"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week."]}
OTHER = {"doc_id": ["a", "b", "c"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week.", "A lamp."]}
NOTING = """

def noted_corpus(name, settings):
    found = read(name, settings)
    return CorpusNote(found["corpus"], len(found["texts"]), found.get("source")) if found["corpus"] else None


def note_source(name, settings, source):
    path = Path(settings.index)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source": source}))
"""
Load = Callable[..., Any]


@pytest.fixture
def load(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a config with a corpus and these retrievers."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("corpus", ROWS), ("other", OTHER)):
        pq.write_table(pa.table(rows), f"{name}.parquet")

    def loaded(*settings: str, **retrievers: Any) -> Any:
        return load_config(
            config_file(values | {"corpus": {"path": "corpus.parquet"}, "retrieve": {"retrievers": retrievers}}), list(settings)
        )

    return loaded


def silent() -> LiveDisplay:
    return LiveDisplay(io.StringIO())


def refusal(config: Any) -> str:
    with pytest.raises(RetrieverError) as error:
        ready_indexes([config], silent())
    assert error.value.code == "index-other"
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the messages while indexes are made ready."""
    lines: list[str] = []
    for module in (index_module, compare):
        monkeypatch.setattr(module, "event", lambda _, words, *__, **___: lines.append(words))
    return lines


@pytest.fixture
def noting(tmp_path: Path) -> dict[str, Any]:
    """A retriever of the user's own whose index keeps a note."""
    text = page_file("overlap.py").replace(
        "from retrievers.kinds", "from retrievers.corpora.builds import CorpusNote\nfrom retrievers.kinds"
    )
    (tmp_path / "overlap.py").write_text(text + NOTING)
    return {"kind": "overlap:OverlapSettings", "index": "overlap.json"}


def test_one_of_another_corpus_is_refused_and_the_files_of_its_own_are_noted(
    load: Load, noting: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(own=noting)
    index(config, [], silent())
    ready_indexes([config], silent())
    assert not said
    with monkeypatch.context() as unread:
        unread.setattr(compare, "passages", None)  # the files are those that were noted, so that nobody reads them
        ready_indexes([config], silent())
    line = refusal(load("corpus.path=other.parquet", own=noting))
    where = "retrieve.retrievers.own: index overlap.json ("
    assert line.startswith(where)
    assert "): was built from another corpus (2 documents) than other.parquet (3; corpus.path); name another index, or" in line


def test_one_without_a_note_is_said_to_be_unknown_once(load: Load, noting: dict[str, Any], said: list[str]) -> None:
    Path("overlap.json").write_text('{"corpus": "", "texts": {}}')
    ready_indexes([load(own=noting, again=noting | {"least": 2})], silent())
    (line,) = said
    assert "was not built by dmqr index, so whether it is of corpus.parquet (corpus.path) is not known" in line


def test_two_of_one_kind_are_two_indexes_though_no_setting_is_called_index(
    load: Load, noting: dict[str, Any], tmp_path: Path
) -> None:
    text = (tmp_path / "overlap.py").read_text()
    (tmp_path / "overlap.py").write_text(text.replace("settings.index", "settings.table").replace("    index:", "    table:"))
    first, second = ({"kind": noting["kind"], "table": f"{name}.json"} for name in ("first", "second"))
    index(load(own=first), [], silent())
    index(load("corpus.path=other.parquet", own=second), [], silent())
    for of in ({"own": first, "again": second}, {"own": second, "again": first}):
        assert "retrieve.retrievers." in refusal(load(**of))
    ready_indexes([load(own=first, again=first | {"least": 2})], silent())


@pytest.mark.slow
def test_an_index_in_elasticsearch(
    load: Load, elasticsearch: str, new_name: Callable[[], str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    elastic = {"kind": "elastic", "index": name}
    config, other = load(bm25=elastic), load("corpus.path=other.parquet", bm25=elastic)
    index(config, [], silent())
    with monkeypatch.context() as unread:
        unread.setattr(compare, "passages", None)
        ready_indexes([config], silent())
    line = refusal(other)
    assert line.startswith(f"retrieve.retrievers.bm25: index {name} (")
    assert "was built from another corpus (2 documents) than other.parquet (3; corpus.path)" in line
    Path("corpus.parquet").rename("moved.parquet")
    moved = load("corpus.path=moved.parquet", bm25=elastic)
    ready_indexes([moved], silent())  # the rows are the same, and the files are noted
    with monkeypatch.context() as unread:
        unread.setattr(compare, "passages", None)
        ready_indexes([moved], silent())
    assert not said
    foreign = new_name()
    ask("PUT", f"/{foreign}", {"mappings": {"properties": {"text": {"type": "text"}}}})
    ready_indexes([load("corpus.path=moved.parquet", bm25=elastic | {"index": foreign})], silent())
    (line,) = said
    assert f"index {foreign} (" in line
    assert "is not known" in line
    with pytest.raises(RetrieverError, match="there is none; build it with"):
        ready_indexes([load("corpus.path=moved.parquet", bm25=elastic | {"index": new_name()})], silent())
