"""The local indexes that `dmqr index` builds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retrievers.corpora.builds import BuildInputs, Built
from retrievers.kinds import RetrieverSettings
from retrievers.local.build import Elsewhere, build_local_index
from retrievers.local.fields import IndexFields, local_indexes


class FolderBuild:
    """An index in a folder; `retrievers.corpora.builds.IndexBuild`."""

    encodes = False

    def __init__(self, folder: str, fields: IndexFields) -> None:
        """Keeps the folder, here or on S3, and the fields to build."""
        self.name = self.place = self.folder = folder
        self._fields = fields

    def build(self, given: BuildInputs) -> Built:
        """Builds the index in its folder."""
        return self.build_in(self.folder, given)

    def build_in(self, folder: str | Path, given: BuildInputs, elsewhere: Elsewhere | None = None) -> Built:
        """Builds the index in another folder of this machine; `elsewhere` is the one that it will replace."""
        return build_local_index(
            folder,
            list(given.sources),
            self._fields,
            progress=given.progress,
            elsewhere=elsewhere,
            columns=given.columns,
            replace=given.replace,
        )

    def shown(self, summary: Built) -> str:
        """Returns its folder."""
        return self.folder


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> list[FolderBuild]:
    """Returns the indexes of local retrievers; raises as `local_indexes`."""
    return [FolderBuild(folder, fields) for folder, fields in local_indexes(retrievers).items()]
