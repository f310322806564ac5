"""Addresses and keys of Elasticsearch, from the environment only, so that no config and no record of a run holds a secret."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from cluster.errors import RetrieverError
from cluster.http import shown_name
from retrievers.elastic.settings import ElasticSettings


class Access(NamedTuple):
    """Addresses and credentials."""

    hosts: list[str]  # without user and password
    api_key: str | None
    basic_auth: tuple[str, str] | None  # user and password
    keys: list[str]  # names of the variables that hold secrets

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of Elasticsearch's client."""
        given = {"api_key": self.api_key, "basic_auth": self.basic_auth}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def secrets(self) -> list[str]:
        """Values that no message may contain."""
        return [value for value in (self.api_key, (self.basic_auth or ("", ""))[1]) if value]


def read_access(where: str, settings: ElasticSettings) -> Access:
    """Returns addresses and credentials from the environment variables that `settings` name.

    `where` is the place in the config, for messages.

    Raises:
        RetrieverError: A variable is not set or holds no address.
    """
    hosts, user = _hosts(where, settings.url_env)
    if key := settings.api_key_env:
        return Access(hosts, _variable(where, "api_key_env", key), None, [key])
    return Access(hosts, None, user, [settings.url_env] if user else [])


def _hosts(where: str, name: str) -> tuple[list[str], tuple[str, str] | None]:
    """Returns the addresses in a variable, and user and password from the first address that has them."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise RetrieverError(
            "server-access",
            f"{where}.url_env: the environment has no {name}; set it to the server's address, such as http://host:9200",
        )
    hosts, user = [], None
    for one in value.split(","):
        try:
            url = urlsplit(one.strip())
            port = url.port or (443 if url.scheme == "https" else 9200)
        except ValueError:
            url, port = urlsplit(""), 0
        if url.scheme not in ("http", "https") or not url.hostname:
            raise RetrieverError(
                "server-access", f"{where}.url_env: {name} holds no address; set it to one such as http://host:9200"
            )
        if url.username and user is None:
            user = unquote(url.username), unquote(url.password or "")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        hosts.append(f"{url.scheme}://{host}:{port}{url.path.rstrip('/')}")
    return hosts, user


def _variable(where: str, key: str, name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise RetrieverError(
            "server-access", f"{where}.{key}: the environment has no {shown_name(name)}; set it there, never in the config"
        )
    return value
