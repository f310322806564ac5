"""The indexes in Elasticsearch that `dmqr index` builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from cluster.errors import DmqrError
from retrievers.corpora.builds import BuildInputs, CorpusNote
from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.connection import Connection
from retrievers.elastic.failures import RequestRefused
from retrievers.elastic.fields import Fields, elastic_indexes
from retrievers.elastic.index import ElasticIndex, put_note, ready_index
from retrievers.elastic.settings import ElasticSettings
from retrievers.elastic.summary import ElasticSummary
from retrievers.kinds import RetrieverSettings


class AliasBuild:
    """An index behind an alias; `retrievers.corpora.builds.IndexBuild`."""

    def __init__(self, url_env: str, alias: str, fields: Fields) -> None:
        """Keeps the variable with the address, the alias, and the fields to build."""
        self.name, self.place, self._fields = alias, f"{alias} ({url_env})", fields
        self.encodes = bool(fields.dense and fields.encoder.loaded)

    def build(self, given: BuildInputs) -> ElasticSummary:
        """Builds the index, then points the alias to it."""
        return build_elastic_index(
            self._fields, list(given.sources), folder=given.folder, progress=given.progress, load=given.load,
            columns=given.columns, source=given.source,
        )  # fmt: skip

    def shown(self, summary: ElasticSummary) -> str:
        """Returns the alias with the concrete index."""
        return f"{self.name} ({summary.name})"


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> list[AliasBuild]:
    """Returns the indexes of retrievers in Elasticsearch; raises as `elastic_indexes`."""
    return [AliasBuild(*place, fields) for place, fields in elastic_indexes(retrievers).items()]


def noted_corpus(name: str, settings: ElasticSettings) -> CorpusNote | None:
    """Returns what an index notes of its corpus; None: it was not built here.

    Raises:
        RetrieverError: There is no such index, or its server is away.
    """
    with _opened(name, settings) as (_, index):
        note = index.note
        return None if note is None else CorpusNote(note["corpus"], note["documents"], note.get("source"))


def note_source(name: str, settings: ElasticSettings, source: str) -> None:
    """Notes in an index of which files it is; where the server refuses it, rows are compared the next time."""
    with suppress(DmqrError, RequestRefused, ConnectionError), _opened(name, settings) as (connection, index):
        put_note(connection, index, source)


@contextmanager
def _opened(name: str, settings: ElasticSettings) -> Iterator[tuple[Connection, ElasticIndex]]:
    connection = Connection(f"retrieve.retrievers.{name}", settings, settings.max_in_flight)
    try:
        connection.check()
        yield connection, ready_index(connection, settings.index)
    finally:
        connection.close()
