"""Settings of retrievers of `kind: web`."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY
from retrievers.kinds import RetrieverSettings
from retrievers.settings import Address

WEB_VERSION = 1  # incremented when an answer would give other hits, or another text be sent; part of a run's fingerprint
ADDRESSES = {"tavily": "https://api.tavily.com", "brave": "https://api.search.brave.com"}  # of providers that have their own
MOST_RESULTS = 20  # that Tavily and Brave give
_SET_HERE = {  # parameters of requests that have keys of their own
    "searxng": {"q", "format", "pageno"},
    "tavily": {"query", "max_results", "api_key"},
    "brave": {"q", "count", "text_decorations", "offset"},
}


class WebSettings(RetrieverSettings):
    """Web search; a hit's text is what the provider says of the page."""

    opener: ClassVar[str] = "retrievers.web.retriever"
    has_index: ClassVar[bool] = False
    of_the_web: ClassVar[bool] = True
    kind: Literal["web"]
    provider: Literal["searxng", "tavily", "brave"]
    """API of the search engine."""
    base_url: Annotated[Address | None, NOT_IDENTITY] = None
    """Address without the path of the search; null: the provider's. SearXNG needs one."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Environment variable with the key."""
    results: Annotated[int, Field(gt=0, le=MOST_RESULTS)] = 10
    """Requested hits."""
    args: dict[str, Any] = {}
    """Further parameters by the provider's names, such as {language: de-AT, time_range: week}."""
    together: bool = False
    """Searches all texts of a query as one."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest score of a hit that takes part in fusion; null: any."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 4
    """Concurrent requests of the whole job."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 30
    """Timeout of one attempt of a search."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 5
    """Minutes for which a search waits for a server that is overloaded or away; then the query goes on without it."""

    @model_validator(mode="before")
    @classmethod
    def _own_address(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("base_url"):
            return values
        own = ADDRESSES.get(str(values.get("provider")))
        return values if own is None else values | {"base_url": own}

    @model_validator(mode="after")
    def _as_the_provider_has_it(self) -> Self:
        if self.base_url is None:
            raise ValueError("give base_url: the address of the server, such as http://searxng:8080")
        if self.provider != "searxng" and self.api_key_env is None:
            raise ValueError(f"{self.provider} needs a key; name the environment variable that holds it in api_key_env")
        for name in sorted(_SET_HERE[self.provider] & self.args.keys()):
            raise ValueError(f"args.{name}: is set by this retriever's own keys, its key by api_key_env; remove it")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Returns the identity of the hits of a text, as JSON values: of all but the web itself."""
        asked: dict[str, Any] = {"results": self.results} | ({"args": self.args} if self.args else {})
        return {"kind": "web", "version": WEB_VERSION, "provider": self.provider} | asked

    def own_limits(self) -> list[tuple[str | None, int]]:
        return [(self.base_url, self.max_in_flight)]

    def search_names(self, name: str) -> dict[str, str | None]:
        """Returns its name with the provider, by which searches may have a price."""
        return {name: self.provider}
