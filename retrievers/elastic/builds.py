"""The indexes in Elasticsearch that `dmqr index` builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retrievers.corpora.builds import BuildInputs
from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.fields import Fields, elastic_indexes
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
            columns=given.columns,
        )  # fmt: skip

    def shown(self, summary: ElasticSummary) -> str:
        """Returns the alias with the concrete index."""
        return f"{self.name} ({summary.name})"


def index_builds(retrievers: Mapping[str, RetrieverSettings], filters: Sequence[str]) -> list[AliasBuild]:
    """Returns the indexes of retrievers in Elasticsearch; raises as `elastic_indexes`."""
    return [AliasBuild(*place, fields) for place, fields in elastic_indexes(retrievers, filters).items()]
