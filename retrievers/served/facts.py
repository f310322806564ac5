"""Facts that a server tells of itself and of a model, before any text is sent to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from cluster.errors import nearest
from retrievers.served.client import ModelServer
from retrievers.served.server import ServerAway, TextRefused

Use = Literal["embedding", "reranker"]


class ServedFacts(NamedTuple):
    """The known facts of a served model.

    Attributes:
        api: "tei" (text-embeddings-inference), "vllm", or "openai" for any other.
        identity: What it says of the weights and of what it makes of a text, as JSON values.
        max_batch: Most texts of a request; None: no limit is known.
        max_length: Tokens of a text at most; None: not known.
    """

    api: str
    identity: Mapping[str, Any]
    max_batch: int | None = None
    max_length: int | None = None


def served_facts(server: ModelServer, use: Use) -> ServedFacts:
    """Returns the facts that `GET /info` (text-embeddings-inference) or `GET /v1/models` tells of the server's model.

    Where it refuses these or fails on them, or does not list the model, its answer to the first request decides.
    """
    info = _told(server, f"{server.root}/info")  # only text-embeddings-inference has it
    if isinstance(info, dict) and isinstance(info.get("model_type"), dict) and "model_id" in info:
        server.listed = (str(info["model_id"]),)
        return _of_tei(server, use, info)
    listed = _told(server, f"{server.base}/models", _listed)
    server.listed = None if listed is None else tuple(listed)
    return _of_listed((listed or {}).get(server.model, {}))


def _told(server: ModelServer, url: str, read: Callable[[Any], Any] | None = None) -> Any:
    """Returns the server's answer at an address; None where it refuses it, or fails until the patience ends."""
    try:
        return server.ask(url, read=read, patience=server.opening_patience, fatal=False)
    except TextRefused:
        return None
    except ServerAway as away:
        if not away.answers:
            raise
        return None


def _of_tei(server: ModelServer, use: Use, info: Mapping[str, Any]) -> ServedFacts:
    if server.model != info["model_id"]:
        raise server.error("model", f"the server has no such model{nearest(server.model, server.listed or ())}; name that one")
    (kind, details), *_ = info["model_type"].items()
    if kind != use:
        raise server.error("model", f"the server has it as {kind}, not as {use}; name another server")
    if use == "embedding" and info.get("auto_truncate") is False:
        raise server.error(
            "engine-setting", "the server refuses texts that are too long for the model; start it with --auto-truncate"
        )
    said = {
        "revision": info.get("model_sha"),
        "pooling": details.get("pooling") if isinstance(details, dict) else None,
        "dtype": info.get("model_dtype"),
    }
    return ServedFacts("tei", _known(said), _count(info.get("max_client_batch_size")), _count(info.get("max_input_length")))


def _of_listed(card: Mapping[str, Any]) -> ServedFacts:
    if card.get("owned_by") != "vllm":
        return ServedFacts("openai", {})
    root = str(card.get("root") or "")
    weights = None if root.startswith(("/", ".", "~")) else root  # a folder there says where, not which
    return ServedFacts("vllm", _known({"weights": weights}), max_length=_count(card.get("max_model_len")))


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _listed(answer: Any) -> dict[str, dict[str, Any]]:
    """Returns the models of `GET /v1/models` by name. Raises ValueError if it is no such list."""
    listed = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed):
        raise ValueError("it is no list of models")
    return {one["id"]: one for one in listed}
