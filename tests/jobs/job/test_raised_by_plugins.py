"""Whatever code of a plug-in raises is one line: which function or class, which file and line, what was raised."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import DmqrError
from dmqr.testing import engine_settings_of, reranker_settings_of, settings_of
from jobs.job.engine import check, open_worker_engine, resolve
from retrievers.corpora.builds import BuildInputs, index_builds
from retrievers.reranker import open_reranker, reranker_identity
from retrievers.retriever import open_retriever
from retrievers.settings import CorpusSettings
from tests.support.plugins import page_file

NO = '{}["no"]\n'
FAILED = "failed: KeyError: 'no'; correct it"
OPENER = '    opener: ClassVar[str] = ":EchoEngine"\n'
GIVE_IT = 'give it `opener: ClassVar[str] = ":Engine"`, with the name of the class of the engine'


def opened() -> object:
    return open_retriever("own", settings_of("overlap:OverlapSettings", index="overlap.json"))


def built() -> object:
    (build,) = index_builds({"own": settings_of("overlap:OverlapSettings", index="new.json")}).builds
    return build.build(BuildInputs(["corpus.parquet"], CorpusSettings(), Path.cwd(), lambda *_: None))


def of_engine(call: Callable[..., object]) -> Callable[[], object]:
    return lambda: call(engine_settings_of("echo:Echo"))


def of_reranker(call: Callable[..., object]) -> Callable[[], object]:
    return lambda: call(reranker_settings_of("shares:Coverage"))


CASES: list[tuple[str, str, str, Callable[[], object], str]] = [
    ("overlap.py", "    return Overlap(", f"    {NO}    return Overlap(", opened,
     f"retrieve.retrievers.own: overlap: open_retriever {FAILED}"),
    ("overlap.py", "    return Overlap(", "    Overlap(", opened,
     "/overlap.py: open_retriever gives NoneType, and should give what has search and identity; correct it"),
    ("overlap.py", "    texts = {}\n", f"    texts = {NO}", built, f"retrieve.retrievers.own: overlap: build_index {FAILED}"),
    ("overlap.py", "return corpus.built()", "corpus.built()", built,
     "/overlap.py: build_index gives NoneType; return corpus.built() or corpus.there()"),
    ("echo.py", "        self._model = settings.model\n", f"        {NO}", of_engine(open_worker_engine),
     f"echo: EchoEngine.__init__ {FAILED}"),
    ("echo.py", '        """Raises RewriterError where no request can succeed."""\n', f"        {NO}",
     of_engine(partial(check, local=True)), f"echo: EchoEngine.check {FAILED}"),
    ("echo.py", '        return {"kind": self.kind, "model": self._model}\n', f"        {NO}", of_engine(resolve),
     f"echo: EchoEngine.identity {FAILED}"),
    ("echo.py", OPENER, OPENER.replace("Engine", "Engin"), of_engine(open_worker_engine),
     f"/echo.py: has no class EchoEngin; {GIVE_IT}"),
    ("echo.py", OPENER, "", of_engine(open_worker_engine), f"/echo.py: Echo names no engine; {GIVE_IT}"),
    ("shares.py", "    def score(", f"    def open(self, device):\n        {NO}\n    def score(", of_reranker(open_reranker),
     f"rerank: shares: Coverage.open {FAILED}"),
    ("shares.py", "    def score(", f"    def check(self):\n        {NO}\n    def score(", of_reranker(reranker_identity),
     f"rerank: shares: Coverage.check {FAILED}"),
]  # fmt: skip


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlap.json").write_text('{"corpus": "sha256:c", "texts": {"d1": "the sea"}}')
    pq.write_table(pa.table({"doc_id": ["d1"], "text": ["the sea"]}), "corpus.parquet")
    return tmp_path


def broken(folder: Path, name: str, old: str, new: str) -> None:
    """Writes a file of the page with one change."""
    text = page_file(name)
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(("name", "old", "new", "call", "line"), CASES)
def test_code_that_fails_is_named_in_one_line(
    at: Path, name: str, old: str, new: str, call: Callable[[], object], line: str
) -> None:
    broken(at, name, old, new)
    with pytest.raises(DmqrError) as raised:
        call()
    assert raised.value.code == "plugin"
    assert str(raised.value) == line or (line.startswith("/") and str(raised.value).endswith(line))


def test_settings_whose_own_check_fails(at: Path) -> None:
    check_it = f'    @model_validator(mode="after")\n    def _check(self):\n        {NO}\n    """Words that a hit shares'
    broken(at, "overlap.py", '    """Words that a hit shares', check_it)
    text = (at / "overlap.py").read_text()
    (at / "overlap.py").write_text(text.replace("from typing", "from pydantic import model_validator\nfrom typing", 1))
    with pytest.raises(ValueError, match=r"OverlapSettings cannot be made of these values: KeyError: 'no'; correct it"):
        settings_of("overlap:OverlapSettings", index="overlap.json")
