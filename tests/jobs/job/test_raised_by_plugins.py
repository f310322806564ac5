"""Whatever code of a plug-in raises is one line: which function or class, which file and line, what was raised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import DmqrError, RetrieverError, RewriterError
from dmqr.testing import engine_settings_of, reranker_settings_of, settings_of
from jobs.job.engine import check, open_worker_engine, resolve
from retrievers.corpora.builds import BuildInputs, index_builds
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.retriever import open_retriever
from retrievers.settings import CorpusSettings
from tests.support.plugins import forget, page_file

Raised = Callable[[], object]


def line_of(call: Raised, refusal: type[DmqrError]) -> str:
    with pytest.raises(refusal) as raised:
        call()
    assert raised.value.code == "plugin"
    assert "\n" not in str(raised.value)
    return str(raised.value)


def broken(folder: Path, name: str, old: str, new: str) -> None:
    """Writes a file of the page with one change."""
    text = page_file(name)
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


NO = '{}["no"]\n'


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlap.json").write_text('{"corpus": "sha256:c", "texts": {"d1": "the sea"}}')
    pq.write_table(pa.table({"doc_id": ["d1"], "text": ["the sea"]}), "corpus.parquet")
    return tmp_path


def test_a_retriever_that_cannot_be_opened(at: Path) -> None:
    broken(at, "overlap.py", "    return Overlap(", f"    {NO}    return Overlap(")
    settings = settings_of("overlap:OverlapSettings", index="overlap.json")
    assert line_of(lambda: open_retriever("own", settings), RetrieverError) == (
        "retrieve.retrievers.own: overlap: open_retriever failed: KeyError: 'no'; correct it"
    )


def test_what_is_opened_is_a_retriever(at: Path) -> None:
    (at / "overlap.py").write_text(page_file("overlap.py").replace("    return Overlap(", "    Overlap("))
    settings = settings_of("overlap:OverlapSettings", index="overlap.json")
    line = line_of(lambda: open_retriever("own", settings), RetrieverError)
    assert line.endswith("overlap.py: open_retriever gives NoneType, and should give what has search and identity; correct it")


def built(at: Path) -> object:
    (build,) = index_builds({"own": settings_of("overlap:OverlapSettings", index="new.json")}).builds
    return build.build(BuildInputs(["corpus.parquet"], CorpusSettings(), at, lambda *_: None))


def test_an_index_that_cannot_be_built(at: Path) -> None:
    broken(at, "overlap.py", "    texts = {}\n", f"    texts = {NO}")
    assert line_of(lambda: built(at), RetrieverError) == (
        "retrieve.retrievers.own: overlap: build_index failed: KeyError: 'no'; correct it"
    )
    (at / "overlap.py").write_text(page_file("overlap.py").replace("return corpus.built()", "corpus.built()"))
    forget("overlap")
    line_ = line_of(lambda: built(at), RetrieverError)
    assert line_.endswith("build_index gives NoneType; return corpus.built() or corpus.there()")


@pytest.mark.parametrize(
    ("old", "what", "call"),
    [
        ("        self._model = settings.model\n", "__init__", open_worker_engine),
        (
            '        """Raises RewriterError where no request can succeed."""\n',
            "check",
            lambda settings: check(settings, local=True),
        ),
        ('        return {"kind": self.kind, "model": self._model}\n', "identity", resolve),
    ],
)
def test_an_engine_that_cannot_be_used(at: Path, old: str, what: str, call: Callable[[Any], object]) -> None:
    broken(at, "echo.py", old, f"        {NO}")
    settings = engine_settings_of("echo:Echo")
    assert line_of(lambda: call(settings), RewriterError) == (f"echo: EchoEngine.{what} failed: KeyError: 'no'; correct it")


@pytest.mark.parametrize(
    ("opener", "wrong"),
    [('    opener: ClassVar[str] = ":EchoEngin"\n', "has no class EchoEngin"), ("", "Echo names no engine")],
)
def test_an_engine_whose_class_is_not_there(at: Path, opener: str, wrong: str) -> None:
    (at / "echo.py").write_text(page_file("echo.py").replace('    opener: ClassVar[str] = ":EchoEngine"\n', opener))
    line = line_of(lambda: open_worker_engine(engine_settings_of("echo:Echo")), RewriterError)
    assert line.endswith(
        f'/echo.py: {wrong}; give it `opener: ClassVar[str] = ":Engine"`, with the name of the class of the engine'
    )


@pytest.mark.parametrize(("method", "call"), [("open(self, device)", open_reranker), ("check(self)", reranker_identity)])
def test_a_reranker_that_cannot_be_opened(at: Path, method: str, call: Callable[[Any], object]) -> None:
    broken(at, "shares.py", "    def score(", f"    def {method}:\n        {NO}\n    def score(")
    settings = reranker_settings_of("shares:Coverage")
    assert line_of(lambda: call(settings), RetrieverError) == (
        f"rerank: shares: Coverage.{method.partition('(')[0]} failed: KeyError: 'no'; correct it"
    )


def test_settings_whose_own_check_fails(at: Path) -> None:
    check_it = f'    @model_validator(mode="after")\n    def _check(self):\n        {NO}\n    """Words that a hit shares'
    broken(at, "overlap.py", '    """Words that a hit shares', check_it)
    text = (at / "overlap.py").read_text()
    (at / "overlap.py").write_text(text.replace("from typing", "from pydantic import model_validator\nfrom typing", 1))
    with pytest.raises(ValueError, match=r"OverlapSettings cannot be made of these values: KeyError: 'no'; correct it"):
        settings_of("overlap:OverlapSettings", index="overlap.json")
