"""Corpora of data sets, written as Parquet with the columns that `corpus` has by default: doc_id, title, text, and others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError, RetrieverError
from cluster.storage import is_there, open_file
from jobs.index.text_tables import as_parquet
from jobs.log.sets import irds
from jobs.log.sets.beir import corpus_of
from jobs.log.sets.names import SetName
from retrievers.corpora.files import Progress, Source
from retrievers.settings import CorpusSettings

_WHERE = "corpus.path"
_BEIR_ID = "_id"


def set_corpus(name: SetName, columns: CorpusSettings, to: Path, progress: Progress) -> Source:
    """Writes the documents of a data set as Parquet; returns it under the set's name.

    BEIR's `_id` becomes `doc_id`, unless the config names it. Of ir_datasets every field is text, and fields of bytes are left
    out.

    Args:
        name: Of the set.
        columns: The config's `corpus`.
        to: Of the Parquet file.
        progress: Called with "convert", documents done, documents in all.

    Raises:
        ConfigError: The set is not there, has no documents, or cannot be fetched.
        RetrieverError: A file cannot be read.
    """
    if name.kind == "beir":
        path = corpus_file(name)
        if columns.id_column == _BEIR_ID:
            return as_parquet(path, columns, to, progress)
        own = columns.model_copy(update={"id_column": _BEIR_ID})
        return as_parquet(path, own, to, progress, {_BEIR_ID: columns.id_column})
    schema = pa.schema([(column, pa.string()) for column in irds.document_columns(name.rest, _WHERE)])
    with pq.ParquetWriter(to, schema) as writer:
        for batch in irds.documents(name.rest, _WHERE, partial(progress, "convert")):
            writer.write_batch(batch)
    return Source(str(name), partial(open_file, str(to)))


def corpus_file(name: SetName) -> str:
    """Returns the file of a set's documents, here or on S3.

    Raises:
        ConfigError: The set is not there, or has no documents.
        RetrieverError: Its folder has queries alone.
    """
    if name.kind != "beir":
        raise ConfigError("test-collection", f"{_WHERE}: {name}: has queries alone; name the corpus that is searched")
    path = corpus_of(name.rest, _WHERE)
    if not is_there(path):
        raise RetrieverError("corpus", f"{_WHERE}: {name}: there is no {path}; correct it")
    return path
