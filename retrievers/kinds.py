"""Retrievers by kind: what is asked of the settings of any, and the registry of those that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from cluster.errors import RetrieverError
from cluster.settings import Kinds, Settings
from retrievers.settings import AnyEncoderSettings

_UNSAID = {"together": False, "score_floor": None, "encoder": None}


class RetrieverSettings(Settings):
    """Of a retriever: what other packages ask of any kind. Where a kind says nothing else, it is as here."""

    opener: ClassVar[str] = ""
    """The module with the kind's `open_retriever`, `open_documents` and `retriever_identity`; "": that of the
    settings."""
    builder: ClassVar[str] = ""  # the module with `index_builds` or `build_index` (`corpora/builds.py`); "": the opener
    foreign: ClassVar[bool] = False  # True if others may make its index, leave texts out, and write to it while it is searched
    has_index: ClassVar[bool] = True  # True if it searches indexes, so that hits do not bring their texts with them
    may_be_part: ClassVar[bool] = True  # True if a hybrid or a union may be made of its one index
    of_absent: ClassVar[Mapping[str, Any]] = {
        "together": bool,
        "score_floor": float | None,
        "encoder": AnyEncoderSettings | None,
    }
    of_the_web: ClassVar[bool] = False  # True if it searches the web, whose pages come with the hits
    originals_only: ClassVar[bool] = False  # True if it has lists of the log's queries alone: rewrites are not searched there
    without_index: ClassVar[str] = "searches the web, so it has no index to build"  # note on a kind that searches no index
    kind: str
    """Of the retriever; of a plug-in an entry point, or `module:Class`."""
    if TYPE_CHECKING:
        together: bool = False
        score_floor: float | None = None

        @property
        def encoder(self) -> AnyEncoderSettings | None:
            """Returns the encoder of dense search."""

    else:

        def __getattr__(self, name: str) -> Any:
            """Returns the defaults of a kind: texts are searched one by one, lists have no floor, it is not dense."""
            return _UNSAID[name] if name in _UNSAID else super().__getattr__(name)

    @property
    def folder(self) -> str | None:
        """Returns the folder of a local index, here or on S3."""
        return None

    @property
    def is_lexical(self) -> bool:
        """Returns True if it searches a local index by BM25, in less time than stored lists are read."""
        return self.folder is not None and self.encoder is None

    @property
    def is_approximate(self) -> bool:
        """Returns True if a deeper search may find other documents, too."""
        return False

    @property
    def searched_field(self) -> str | None:
        """Returns the field of a foreign index that is searched."""
        return None

    @property
    def own_depth(self) -> int | None:
        """Returns the number of hits used of each list that its own is made of."""
        return None

    def location(self, identity: Mapping[str, Any]) -> str:
        """Returns the name of its index in messages, by the identity of the index."""
        return str(identity.get("index", getattr(self, "index", self.kind)))

    def at(self, identity: Mapping[str, Any]) -> Self:
        """Returns the settings with what an alias stood for when the index had this identity; {}: not resolved yet."""
        return self

    def indexed(self, name: str) -> dict[str, RetrieverSettings]:
        """Returns the retrievers with an index that it searches, itself or its parts, by key below `retrieve.retrievers`.

        The first has the texts of documents.
        """
        return {name: self} if self.has_index else {}

    def member(self, key: str) -> str:
        """Returns the name that begins the ids of documents of one of `indexed`, by its key, in a union; "" elsewhere."""
        return ""

    def with_indexed(self, name: str, change: Callable[[str, RetrieverSettings], RetrieverSettings]) -> RetrieverSettings:
        """Returns settings in which `change` has replaced each of `indexed`, by key and settings."""
        return change(name, self) if self.has_index else self

    def identity_of(self, name: str, indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Returns its identity, made of those of its indexes by key; of one that searches an index."""
        return dict(indexes[name])

    def facts_of(
        self, name: str, identities: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns the facts about it, made of those about its indexes, and of their identities, by key."""
        return dict(facts.get(name, {}))

    def search_names(self, name: str) -> dict[str, str | None]:
        """Returns the names under which its searches are counted, each with the model of its encoder."""
        return {name: self.encoder.model if self.encoder else None}


def folders() -> dict[str, str]:
    """Returns the kinds of this package, each a folder: its name -> `module:Class` of its settings.

    A folder `own_kind/` is one if its `settings.py` has a class `OwnKindSettings` of RetrieverSettings.
    """
    by_name = {}
    for file in sorted(Path(__file__).parent.glob("*/settings.py")):
        kind = file.parent.name
        name = "".join(map(str.capitalize, kind.split("_"))) + "Settings"
        if f"class {name}(" in file.read_text(encoding="utf-8"):
            by_name[kind] = f"{__package__}.{kind}.settings:{name}"
    return by_name


KINDS = Kinds(folders(), group="dmqr.retrievers", refusal=RetrieverError)  # the kinds of retrievers
AnyRetrieverSettings = Annotated[RetrieverSettings, KINDS]
IndexSettings = Annotated[RetrieverSettings, KINDS.only(lambda one: one.has_index and one.may_be_part)]
"""The settings of a retriever that searches an index of its own."""
WebOnly = Annotated[RetrieverSettings, KINDS.only(lambda one: one.of_the_web)]  # the settings of a search engine of the web


def part_name(name: str, part: str) -> str:
    """Returns the key below ``retrieve.retrievers`` of one of the retrievers that another is made of."""
    return f"{name}.of.{part}"


def indexed_identities(indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the parts of `all_indexed`, by the same keys, of parts by retriever."""
    parts: dict[str, Mapping[str, Any]] = {}
    for name, identity in indexes.items():
        parts |= {part_name(name, part): one for part, one in identity["of"].items()} if "of" in identity else {name: identity}
    return parts


def all_indexed(retrievers: Mapping[str, RetrieverSettings]) -> dict[str, RetrieverSettings]:
    """Returns the retrievers with an index of their own of a whole `retrieve.retrievers`."""
    return {key: one for name, settings in retrievers.items() for key, one in settings.indexed(name).items()}
