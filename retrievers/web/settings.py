"""Settings of retrievers of `kind: web`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.settings import DURATION, NOT_IDENTITY, Names, duration_seconds
from retrievers.kinds import RetrieverSettings
from retrievers.settings import Address, AnyEncoderSettings

WEB_VERSION = 1
"""Incremented when the same answer would be read as other hits, or another text be sent; part of a run's fingerprint."""
ADDRESSES = {"tavily": "https://api.tavily.com", "brave": "https://api.search.brave.com"}
"""Of the providers that have one of their own."""
MOST_RESULTS = 20  # that Tavily and Brave give
_SET_HERE = {  # parameters of requests that have keys of their own
    "searxng": {"q", "format", "language", "time_range", "pageno"},
    "tavily": {"query", "max_results", "country", "time_range", "api_key"},
    "brave": {"q", "count", "search_lang", "country", "freshness", "text_decorations", "offset"},
}


class WebSettings(RetrieverSettings):
    """Searches of the web; a hit's text is what the provider says of the page."""

    opener: ClassVar[str] = "retrievers.web.retriever"
    filterable: ClassVar[bool] = False
    may_be_part: ClassVar[bool] = False
    of_the_web: ClassVar[bool] = True
    kind: Literal["web"]
    """This kind."""
    provider: Literal["searxng", "tavily", "brave"]
    """Whose API is spoken."""
    base_url: Annotated[Address | None, NOT_IDENTITY] = None
    """Of the server, without the path of the search; null: the provider's own, of SearXNG that in `url_env`."""
    url_env: Annotated[str | None, NOT_IDENTITY] = None
    """Name of the environment variable with the address, in place of base_url."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Name of the environment variable that holds the key; SearXNG wants none."""
    api_key_file: Annotated[str | None, NOT_IDENTITY, Names.KEY] = None
    """In place of api_key_env: a file on every node with the key; read anew when the server refuses the key."""
    results: Annotated[int, Field(gt=0, le=MOST_RESULTS)] = 10
    """Hits that are asked for; of SearXNG so many of its first page."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Of the pages, by its code: SearXNG (de, de-AT) and Brave (de)."""
    country: Annotated[str, Field(min_length=1)] | None = None
    """From which is searched, as the provider writes it: Tavily (germany) and Brave (DE)."""
    time_range: Literal["day", "week", "month", "year"] | None = None
    """Only pages of the last day, week, month or year."""
    args: dict[str, Any] = {}
    """Further parameters of the provider's request, by its names: {engines: wikipedia} of SearXNG, {search_depth: advanced} of
    Tavily."""
    lifetime: Annotated[Annotated[str, Field(pattern=DURATION)] | None, NOT_IDENTITY] = "7d"
    """How long a stored answer is good (minutes, hours, days, weeks); an older one is asked for again. null: for ever."""
    rate: Annotated[Annotated[float, Field(gt=0)] | None, NOT_IDENTITY] = None
    """Requests of the whole job a second, at most; null: no limit of ours."""
    together: bool = False
    """All texts of a query are searched as one: docs/strategies.md."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of its lists with a lower score take no part in fusion; null: all do."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 4
    """Requests of the whole job at a time."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 30
    """For one attempt of a search."""
    attempts: Annotated[int, Field(gt=0), NOT_IDENTITY] = 3
    """Of a search that times out or is answered badly."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 5
    """How long a search waits for a server that is overloaded or away; then its query goes on without it."""

    @model_validator(mode="before")
    @classmethod
    def _own_address(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("base_url") or values.get("url_env"):
            return values
        own = ADDRESSES.get(str(values.get("provider")))
        return values if own is None else values | {"base_url": own}

    @model_validator(mode="after")
    def _as_the_provider_has_it(self) -> WebSettings:
        if (self.base_url is None) == (self.url_env is None):
            raise ValueError("give base_url or url_env, one of them: the address of the server, such as http://searxng:8080")
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("has api_key_env and api_key_file; give one of them")
        if self.provider != "searxng" and self.api_key_env is None and self.api_key_file is None:
            raise ValueError(f"{self.provider} wants a key; name the environment variable that holds it in api_key_env")
        if self.provider == "searxng" and self.country is not None:
            raise ValueError("country: SearXNG has none; give a language with a region, such as language: de-AT")
        if self.provider == "tavily" and self.language is not None:
            raise ValueError("language: Tavily has none; give a country, or write rewrites in the language")
        for name in sorted(_SET_HERE[self.provider] & self.args.keys()):
            raise ValueError(f"args.{name}: is set by this retriever's own keys, its key by api_key_env; remove it")
        return self

    @property
    def encoder(self) -> AnyEncoderSettings | None:
        """Returns None: it compares no vectors."""
        return None

    @property
    def server(self) -> str:
        """Returns what tells its server from others: the address, or the variable that holds it."""
        return self.base_url or f"${self.url_env}"

    @property
    def lifetime_seconds(self) -> float:
        """Returns how long a stored answer is good."""
        return float("inf") if self.lifetime is None else duration_seconds(self.lifetime)

    @property
    def identity(self) -> dict[str, Any]:
        """Returns all that determines the hits of a text but the web itself, as JSON values."""
        names = ("results", "language", "country", "time_range", "args")
        asked: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {"kind": "web", "version": WEB_VERSION, "provider": self.provider} | {
            name: value for name, value in asked.items() if value
        }

    def own_limits(self) -> list[tuple[str | None, int]]:
        """Returns its server with its requests in flight."""
        return [(self.server, self.max_in_flight)]

    def for_worker(self, workers: Mapping[str | None, int]) -> Self:
        """Returns the settings with one worker's share of the requests in flight, and of those a second."""
        shared = super().for_worker(workers)
        share = None if self.rate is None else self.rate / workers.get(self.server, 1)
        return shared.model_copy(update={"rate": share})

    def place(self, identity: Mapping[str, Any]) -> str:
        """The provider."""
        return self.provider

    def indexed(self, name: str) -> dict[str, RetrieverSettings]:
        """Returns nothing: it has no index."""
        return {}

    def with_indexed(self, name: str, change: Callable[[str, RetrieverSettings], RetrieverSettings]) -> Self:
        """Returns itself: it has no index."""
        return self

    def identity_of(self, name: str, indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Returns `identity`."""
        return self.identity

    def facts_of(
        self, name: str, identities: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns nothing: there is no index to tell of."""
        return {}

    def search_names(self, name: str) -> dict[str, str | None]:
        """Returns its name with the provider, by which searches may have a price."""
        return {name: self.provider}
