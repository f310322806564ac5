"""Arms that leave collections out, and with them their retrievers, and the strategies that are searched nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.errors import ConfigError, nearest
from jobs.config.config import Config
from rewriters.pool import named


def with_left_collections(values: dict[str, Any], config: Config, where: str) -> list[Any]:
    """Removes from the values of an arm what belongs to collections that it leaves out.

    That is their retrievers, and the routes and weights of these. A collection that is null is left out.

    Args:
        values: Of the arm's config.
        config: That of the ablation.
        where: The arm, for messages.

    Returns:
        The strategies of the pool without those that belonged to these collections alone.

    Raises:
        ConfigError: The arm leaves all out, or has collections that the config lacks.
    """
    known, retrieve, fuse = config.retrieve.collections, values["retrieve"], values["fuse"]
    given = retrieve["collections"] if isinstance(retrieve["collections"], Mapping) else {}
    left = retrieve["collections"] = {name: one for name, one in given.items() if one is not None}
    key = f"{where}: retrieve.collections"
    if not known or not left:
        why = "the config has none" if not known else "an arm may leave out some, not all"
        raise ConfigError("config-value", f"{key}: {why}, since arms are compared by what documents are called; remove it")
    if new := [name for name in left if name not in known]:
        raise ConfigError(
            "config-value", f"{key}: the config has no collection {new[0]!r}{nearest(new[0], known)}, and arms are compared by "
            "what documents are called"
        )  # fmt: skip
    used = {name for one in left.values() if isinstance(one, Mapping) for name in one.get("retrievers") or ()}
    lost = config.retrieve.collection_of.keys() - used
    for keys in (retrieve["retrievers"], fuse["retriever_weights"]):
        for name in lost & keys.keys():
            del keys[name]
    for name in fuse["collection_weights"].keys() - left.keys():
        del fuse["collection_weights"][name]
    for name in [name for name in fuse["weights"] if name.partition("/")[2] in lost]:
        del fuse["weights"][name]
    retrieve["routes"] = {of: [name for name in names if name not in lost] for of, names in retrieve["routes"].items()}
    if not retrieve["routes"].get("original", True):
        del retrieve["routes"]["original"]
    own = {name for one in left.values() if isinstance(one, Mapping) for name in one.get("strategies") or ()}
    gone = {name for collection in known.keys() - left.keys() for name in known[collection].strategies or ()} - own
    return [entry for entry in config.rewrite.strategies if named(entry).name not in gone]
