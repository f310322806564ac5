"""Addresses and keys of Elasticsearch, from the environment only, so that no config and no record of a run holds a secret."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cluster.errors import RetrieverError
from cluster.http import ApiKey
from retrievers.elastic.settings import ElasticSettings


class Access(NamedTuple):
    """Addresses and credentials."""

    hosts: list[str]  # without user and password
    api_key: str | None
    basic_auth: tuple[str, str] | None  # user and password
    variable: str | None  # that holds a secret

    @property
    def secrets(self) -> list[str]:
        """Values that no message may contain."""
        return [value for value in (self.api_key, (self.basic_auth or ("", ""))[1]) if value]


def read_access(where: str, settings: ElasticSettings) -> Access:
    """Returns addresses and credentials from the environment variables that `settings` name.

    `where` is the place in the config, for messages.
    """
    hosts, user = _hosts(where, settings.url_env)
    try:
        key = ApiKey(settings.api_key_env)
    except ValueError as problem:
        raise RetrieverError("server-access", f"{where}: {problem}") from None
    if key.value:
        return Access(hosts, key.value, None, key.source)
    return Access(hosts, None, user, settings.url_env if user else None)


def _hosts(where: str, name: str) -> tuple[list[str], tuple[str, str] | None]:
    """Returns the addresses in a variable, and user and password from the first address that has them."""
    hosts, user = [], None
    for address in os.environ.get(name, "").split(","):
        try:
            url = urlsplit(address.strip())
            port = url.port or (443 if url.scheme == "https" else 9200)
        except ValueError:
            url, port = urlsplit(""), 0
        if url.scheme not in ("http", "https") or not url.hostname:
            found = f"{name} holds no address" if os.environ.get(name, "").strip() else f"the environment has no {name}"
            raise RetrieverError("server-access", f"{where}.url_env: {found}; set it to one such as http://host:9200")
        if url.username and user is None:
            user = unquote(url.username), unquote(url.password or "")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        hosts.append(f"{url.scheme}://{host}:{port}{url.path.rstrip('/')}")
    return hosts, user
