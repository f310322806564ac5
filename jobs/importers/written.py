"""A data set as files of a folder: log, corpus, answers, judgements, and a config that names them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cluster.errors import ConfigError, nearest
from cluster.storage import remote
from cluster.storage.whole_file import written
from jobs.config.config import Config
from jobs.importers.ambignq import AMBIGNQ
from jobs.importers.freshqa import FRESHQA
from jobs.importers.hotpotqa import HOTPOTQA
from jobs.importers.musique import MUSIQUE
from jobs.importers.questions import DataSet, PassageFile, Question, Questions

SETS: dict[str, DataSet] = {"ambignq": AMBIGNQ, "freshqa": FRESHQA, "hotpotqa": HOTPOTQA, "musique": MUSIQUE}
LOG, CORPUS, ANSWERS, QRELS, INDEX = "log.parquet", "corpus.parquet", "answers.tsv", "qrels.tsv", "index"
_ENGINE = {"kind": "openai", "base_url": "http://localhost:8000/v1", "model": "Qwen/Qwen3-8B"}
_WEB = {"kind": "web", "provider": "searxng", "url_env": "SEARXNG_URL"}
_WIDTH = 120  # columns of the config


@dataclass(frozen=True)
class ImportedSet:
    """What became of a file."""

    config: str
    """Path of the config."""
    files: tuple[str, ...]
    """Paths of the other files."""
    questions: int
    passages: int
    repeated: int
    """Paragraphs that are passages met before."""
    answered: int
    """Questions with gold answers."""
    judged: int
    """Questions with judgements."""
    judgements: int
    searched: str
    """What the config searches, in words."""
    notes: dict[str, int]
    """What else was met, in words -> how often."""


def import_set(name: str, path: str, to: str, corpus: Sequence[str] = ()) -> ImportedSet:
    """Writes a data set's file as files of a folder; all of them, or none where one cannot be made.

    Args:
        name: Of the set, in `SETS`.
        path: Of its file, here or on S3.
        to: The folder, which is made if need be.
        corpus: Paths of what is searched, for a set without passages of its own; without any that is the web.

    Raises:
        ConfigError: There is no such set, a record is not as the set has it, files are there already, or a corpus is named for
            a set that has one.
        OSError: A file cannot be read or written.
    """
    if name not in SETS:
        raise ConfigError("argument", f"{name}: is no data set that is imported{nearest(name, SETS)}")
    data_set = SETS[name]
    if corpus and data_set.has_corpus:
        raise ConfigError("argument", f"--corpus: {name} brings its own passages, which its judgements name; leave it out")
    config, *others = (_place(to, one) for one in (f"{name}.yaml", LOG, CORPUS, ANSWERS, QRELS))
    _check_free(to, [config, *others])
    made = not Path(to).exists()
    Path(to).mkdir(parents=True, exist_ok=True)
    try:
        return _written(name, path, to, [str(one) for one in corpus], config)
    except BaseException:
        if made and not any(Path(to).iterdir()):
            Path(to).rmdir()
        raise


def _place(to: str, name: str) -> str:
    return str(Path(to, name))


def _check_free(to: str, paths: Sequence[str]) -> None:
    if remote(to):
        raise ConfigError("argument", f"--to {to}: is no folder of this machine; give one, and copy it afterwards")
    if Path(to).exists() and not Path(to).is_dir():
        raise ConfigError("argument", f"--to {to}: is a file; give a folder")
    for path in paths:
        if Path(path).exists():
            raise ConfigError("argument", f"--to {to}: {path} is there and is not overwritten; give another folder")


def _written(name: str, path: str, to: str, corpus: list[str], config: str) -> ImportedSet:
    """Reads the records, and writes each file under another name, until all of them are whole; the config is the last."""
    data_set, questions = SETS[name], Questions()
    with ExitStack() as stack:
        config_file = stack.enter_context(written(config))  # what is entered first gets its name last
        passages = None
        if data_set.has_corpus:
            passages = stack.enter_context(closing(PassageFile(stack.enter_context(written(_place(to, CORPUS))))))
        data_set.read(data_set.records(path), passages, questions)
        found = list(questions.found.values())
        if not found:
            raise ConfigError("data-set", f"{path}: holds no question; name another file")
        answers = [f"{one.id}\t{' '.join(answer.split())}" for one in found for answer in one.answers]
        qrels = [f"{one.id}\t{doc_id}\t1" for one in found for doc_id in sorted(one.documents)]
        files = [LOG, *([CORPUS] if passages is not None else [])]
        for file, lines in ((ANSWERS, answers), (QRELS, qrels)):
            if lines:
                text = "".join(f"{line}\n" for line in lines)
                stack.enter_context(written(_place(to, file))).write_text(text, encoding="utf-8")
                files.append(file)
        table = _log(found, data_set)
        pq.write_table(table, stack.enter_context(written(_place(to, LOG))), compression="zstd")
        slices = [one for one in data_set.slices if table.column(one).null_count < len(table)]
        values = _config(name, to, files, slices, corpus)
        searched = _searched(data_set, corpus)
        header = [f"Written by dmqr import {name} from {path}: {len(found):,} questions.", f"It searches {searched}."]
        header.append("To be changed: the LLM's server, dense search, a reranker; docs/settings.md says what to choose.")
        text = "".join(f"# {line}\n" for line in header)
        text += yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=_WIDTH)
        config_file.write_text(text, encoding="utf-8")
    return ImportedSet(
        config,
        tuple(_place(to, file) for file in files),
        len(found),
        0 if passages is None else len(passages),
        0 if passages is None else passages.met - len(passages),
        sum(bool(one.answers) for one in found),
        sum(bool(one.documents) for one in found),
        len(qrels),
        searched,
        {words: n for words, n in questions.notes.items() if n},
    )


def _log(questions: Sequence[Question], data_set: DataSet) -> pa.Table:
    """Returns the log: id, query, and the set's own columns."""
    own = {one.name: pa.array([question.values[one.name] for question in questions], one.type) for one in data_set.columns}
    ids, queries = ([getattr(question, name) for question in questions] for name in ("id", "query"))
    return pa.table({"id": pa.array(ids, pa.string()), "query": pa.array(queries, pa.string())} | own)


def _searched(data_set: DataSet, corpus: Sequence[str]) -> str:
    if data_set.has_corpus:
        return f"the set's own passages ({CORPUS})"
    if corpus:
        return f"{', '.join(corpus)}: the set has no passages of its own, and so no judgements"
    return "the web, by a SearXNG (SEARXNG_URL): the set has no passages of its own; --corpus names some in its place"


def _config(name: str, to: str, files: Sequence[str], slices: Sequence[str], corpus: list[str]) -> dict[str, Any]:
    """Returns a config that loads: rewritten by a server's LLM, searched by BM25 or on the web, answered in a few words."""
    by_words = {"bm25": {"kind": "local", "index": _place(to, INDEX)}}
    searched = corpus if len(corpus) > 1 else corpus[0] if corpus else _place(to, CORPUS) if CORPUS in files else None
    values: dict[str, Any] = {"name": name, "log": {"path": _place(to, LOG), "query_column": "query", "id_column": "id"}}
    if searched is not None:
        values["corpus"] = {"path": searched}
    values["rewrite"] = {"engine": _ENGINE}
    values["retrieve"] = {"retrievers": by_words} if searched is not None else {"depth": 10, "retrievers": {"web": _WEB}}
    if searched is None:
        values["fuse"] = {"method": "rrf", "depth": 10, "redundancy": "none"}
    values["rerank"] = {"kind": "none"}
    evaluate: dict[str, Any] = {}
    if QRELS in files:
        evaluate["qrels"] = _place(to, QRELS)
    if ANSWERS in files:
        values["answer"] = {"prompt": "short_answer"}
        evaluate["answers"] = _place(to, ANSWERS)
    values["evaluate"] = evaluate | ({"slices": list(slices)} if slices else {})
    values["output"] = "runs"
    Config.model_validate(values)
    return values
