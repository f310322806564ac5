"""Where Elasticsearch is and who asks: addresses and keys, from the environment only, so that no config and no record of a
run can hold a secret."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from retrievers.retriever import RetrieverError

KEYS: dict[str, Any] = {
    "url_env": "ELASTICSEARCH_URL",
    "api_key_env": None,
    "user_env": None,
    "password_env": None,
    "ca_file": None,
    "timeout_seconds": 60.0,
    "patience_minutes": 10.0,
}
"""The keys of a block that say how the server is reached, with their defaults."""


class Access(NamedTuple):
    """``hosts``: addresses without what else stood in them. ``keys``: names of the variables that hold secrets."""

    hosts: list[str]
    api_key: str | None
    basic_auth: tuple[str, str] | None
    keys: list[str]

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated to anybody."""
        return [value for value in (self.api_key, (self.basic_auth or ("", ""))[1]) if value]


def read_access(where: str, settings: Mapping[str, Any]) -> Access:
    """What the environment says, by the names that a block's settings (all of `KEYS`) give.

    Raises:
        RetrieverError: a variable is not set or holds no address; no such ca_file.
    """
    if settings["ca_file"] and not Path(settings["ca_file"]).is_file():
        raise RetrieverError(f"{where}.ca_file: {settings['ca_file']}: no such file; name the PEM file of the server's CA")
    hosts, user = _hosts(where, settings["url_env"])
    if settings["api_key_env"]:
        return Access(hosts, _variable(where, "api_key_env", settings), None, [settings["api_key_env"]])
    if settings["user_env"] or settings["password_env"]:
        user = _variable(where, "user_env", settings), _variable(where, "password_env", settings)
        return Access(hosts, None, user, [settings["user_env"], settings["password_env"]])
    return Access(hosts, None, user, [settings["url_env"]] if user else [])


def _hosts(where: str, name: str) -> tuple[list[str], tuple[str, str] | None]:
    """The addresses of a variable, and the user and password that stand in the first one that has any."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise RetrieverError(
            f"{where}.url_env: the environment has no {name}; set it to the server's address, such as http://host:9200"
        )
    hosts, user = [], None
    for one in value.split(","):
        try:
            url = urlsplit(one.strip())
            port = url.port or (443 if url.scheme == "https" else 9200)
        except ValueError:
            url, port = urlsplit(""), 0
        if url.scheme not in ("http", "https") or not url.hostname:
            raise RetrieverError(f"{where}.url_env: {name} holds no address; set it to one such as http://host:9200")
        if url.username and user is None:
            user = unquote(url.username), unquote(url.password or "")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        hosts.append(f"{url.scheme}://{host}:{port}{url.path.rstrip('/')}")
    return hosts, user


def _variable(where: str, key: str, settings: Mapping[str, Any]) -> str:
    name = settings[key]
    if not name:
        raise RetrieverError(f"{where}: user_env and password_env belong together; give {key}, too")
    value = os.environ.get(name, "").strip()
    if not value:
        raise RetrieverError(f"{where}.{key}: the environment has no {name}; set it there, never in the config")
    return value
