"""`dmqr index` over folders of documents, here and on S3: what it says, what it keeps, what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.pages.try_one import page
from jobs.try_one.outcome import trial_values
from jobs.try_one.trial import LoadedConfig
from retrievers.corpora.corpus import open_arrow
from retrievers.local.index import LocalDocuments, read_index
from tests.support.jobs.terminals import printed
from tests.support.retrievers.small_pdf import small_pdf

Written = Callable[[Any], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handbook of three documents, beside a picture."""
    folder = tmp_path / "handbook"
    (folder / "pumps").mkdir(parents=True)
    (folder / "pumps" / "manual.pdf").write_bytes(small_pdf("Bleed the valve\nbefore winter.", "", "Grease it in May."))
    (folder / "tides.md").write_text("# Tides\n\n" + "The spring tide comes at new moon. " * 20)
    (folder / "notes.txt").write_text("Salt water corrodes the bronze impeller.")
    (folder / "plan.png").write_bytes(b"\x89PNG")
    return folder


@pytest.fixture
def config(values: dict[str, Any], config_file: Written, tmp_path: Path) -> Callable[..., str]:
    """Writes a config with an index of BM25 and these settings of the corpus."""

    def write(**corpus: Any) -> str:
        bm25 = {"kind": "local", "index": str(tmp_path / "index"), "analyzer": "english"}
        return config_file(values | {"corpus": corpus, "retrieve": {"retrievers": {"bm25": bm25}}})

    return write


def rows(index: Path) -> list[dict[str, Any]]:
    data = index / read_index(index)["data"]
    return [row for batch in open_arrow(data / "documents.arrow") for row in batch.to_pylist()]


def test_a_folder_of_documents(
    folder: Path, config: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(split={"size": 120, "overlap": 30})
    assert main(["index", path, "--corpus", str(folder)]) == 0
    said = capsys.readouterr().out
    kept = rows(tmp_path / "index")
    assert f"{len(kept)} documents, built\n  {len(kept)} passages of 3 documents" in said
    assert "warning: no text in pumps/manual.pdf page 2\n  left out 1 files of other kinds (1 .png)" in said
    by_id = {row["doc_id"]: row for row in kept}
    assert by_id["pumps/manual.pdf#2"]["text"].strip() == "Grease it in May."
    assert {key: by_id["pumps/manual.pdf#2"][key] for key in ("source", "page", "chunk")} == {
        "source": "pumps/manual.pdf", "page": 3, "chunk": 2,
    }  # fmt: skip
    assert by_id["tides.md#2"]["title"] == "Tides"
    assert by_id["tides.md#2"]["page"] is None
    assert max(len(row["text"]) for row in kept) <= 120
    places = LocalDocuments(tmp_path / "index").places(["tides.md#2", "pumps/manual.pdf#2"])
    assert places == ["tides.md", "pumps/manual.pdf, page 3"]  # as an answer cites them
    assert main(["index", path, "--corpus", str(folder)]) == 0
    assert "exists already" in capsys.readouterr().out


def test_a_result_says_its_source_and_page(folder: Path, config: Callable[..., str]) -> None:
    path = config()
    assert main(["index", path, "--corpus", str(folder)]) == 0
    config = load_config(path, ["rewrite.strategies=[]", "rerank={kind: none}"])
    with LoadedConfig(config, path, "handbook") as loaded:
        trial = loaded.try_query("grease it in may", lambda _: None)
    first = trial_values(trial)["results"][0]
    assert (first["doc_id"], first["place"], first["url"]) == ("pumps/manual.pdf#2", "pumps/manual.pdf, page 3", None)
    for trials in ([trial], [trial, trial]):
        assert "pumps/manual.pdf, page 3" in printed(page(trials))


@pytest.mark.parametrize(
    ("files", "split", "words"),
    [
        ({"broken.pdf": b"%PDF-1.4 nothing"}, None, "broken.pdf: cannot be read as PDF"),
        ({}, None, "papers: is an empty folder; correct corpus.path or --corpus [corpus]\n"),
        ({"a.docx": b"x"}, None, "holds no *.parquet, *.jsonl or *.csv file and no document (.txt"),
        ({"a.txt": b"x"}, {"size": 10, "overlap": 10}, "corpus.split"),
        ({"a.txt": b"x"}, {"size": 0}, "corpus.split"),
    ],
)
def test_what_cannot_be_indexed_is_refused(
    files: dict[str, bytes], split: Any, words: str, config: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "papers").mkdir()
    for name, data in files.items():
        (tmp_path / "papers" / name).write_bytes(data)
    assert main(["index", config(split=split), "--corpus", str(tmp_path / "papers")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "index").exists()
