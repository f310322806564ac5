"""The synonym set of a version: it is called as the index of its rows, `NAME-VERSION`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from cluster.errors import ConfigError, RetrieverError
from jobs.publish.formats.synonyms import BODY
from retrievers.elastic.connection import Connection

OLD_LIMIT = 10_000
"""Rules of a set in clusters without the setting; some keep more and do not say which."""
_LIMIT = "max_synonym_rules"
_TIMEOUT = 600.0  # seconds; the server writes all rules before it answers


def check_limit(connection: Connection, rules: int) -> None:
    """Refuses more rules than the cluster has in a set.

    Raises:
        ConfigError: There are more.
    """
    if rules > (most := _limit(connection)):
        what = f"--synonym-rules: {connection.address} takes {most:,} rules of a set at most, and there are {rules:,}"
        raise ConfigError("argument", f"{what}; give a lower number")


def put_set(connection: Connection, name: str, folder: Path, rules: int) -> None:
    """Puts the rules that the format has written as a set, in place of what the set holds, and counts them.

    Raises:
        DmqrError: The server refuses them, or holds another number.
    """
    path = f"/_synonyms/{quote(name, safe='')}"
    connection.request("PUT", path, (folder / BODY).read_bytes(), timeout=_TIMEOUT)
    found = connection.request("GET", path, params={"size": 1}).body["count"]
    if found != rules:
        what = f"synonym set {name} at {connection.address}: holds {found:,} rules in place of {rules:,}"
        raise ConfigError("publish-version", f"{what}; remove it, and export it again")


def _limit(connection: Connection) -> int:
    """Returns how many rules a set may have; of a cluster that does not say so, `OLD_LIMIT`."""
    params = {"include_defaults": "true", "filter_path": f"*.synonyms.{_LIMIT}"}
    try:
        settings = connection.request("GET", "/_cluster/settings", params=params).body or {}
    except RetrieverError as error:
        if error.code != "elastic-access":
            raise
        return OLD_LIMIT  # the key may put synonyms, but not read settings
    of = [settings[kind]["synonyms"][_LIMIT] for kind in ("transient", "persistent", "defaults") if kind in settings]
    return int(of[0]) if of else OLD_LIMIT
