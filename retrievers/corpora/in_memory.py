"""Documents whose texts are in memory, for a retriever whose index is small; or none, for one without texts."""

from collections.abc import Mapping, Sequence
from itertools import islice

from cluster.errors import RetrieverError
from retrievers.retriever import Alive, no_heartbeat


class DocumentsInMemory:
    """Texts by doc_id; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, where: str, texts: Mapping[str, str], remedy: str = "build the index again") -> None:
        """Keeps the texts; `where` is the place in the config, `remedy` what to do where one is missing, for messages."""
        self._where, self._texts, self._remedy = where, texts, remedy

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        missing = next((one for one in doc_ids if one not in self._texts), None)
        if missing is not None:
            raise RetrieverError("index-other", f"{self._where}: no document {missing!r}; {self._remedy}")
        alive()
        return [self._texts[one] for one in doc_ids]

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        return [""] * len(doc_ids)

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        return [one in self._texts for one in doc_ids]

    def some(self, count: int) -> list[str]:
        return list(islice(self._texts.values(), count))
