"""What is left of a job in tokens, hours and money, as far as it can be known before it is done.

By what queries cost that were done: of this run, else of the newest finished run of the same name that rewrites and searches
the same way (the night before). Where there is neither, prompts are counted on some of the queries, and answers are bounded
by `max_tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster import costs
from cluster.shards import Manifest, spent
from jobs.config import Config
from jobs.engine_config import Openai, Vllm
from jobs.part import ConfigError
from jobs.prepare import Prepared
from jobs.run_folder import open_run
from rewriters.engines.usage import Counter
from rewriters.rewriter import Rewriter

SAMPLE = 200  # queries whose prompts are counted


@dataclass(frozen=True)
class Expected:
    """Sums over the queries that are left; None: not known."""

    basis: str
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    at_most: bool
    """completion_tokens is a bound, not an estimate."""
    seconds: float | None
    """Busy time of all workers together."""
    usd: float | None

    def values(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def expect(prepared: Prepared, left: int, done: Sequence[Manifest], texts: Sequence[str]) -> Expected | None:
    """What `left` queries will come to; None where nothing is known of them.

    Args:
        done: committed shards of this run.
        texts: some of the queries.
    """
    if not left:
        return None
    if done:
        return _by_manifests(prepared, left, done, f"by {len(done):,} shards that are committed")
    if (night := _night_before(prepared)) is not None:
        run_id, manifests = night
        return _by_manifests(prepared, left, manifests, f"by {run_id}, the last run of this kind")
    return _by_tokenizer(prepared, left, texts)


def _by_manifests(prepared: Prepared, left: int, manifests: Sequence[Manifest], basis: str) -> Expected:
    total, starting = _apart(spent(manifests))
    scale = left / max(1, sum(manifest.counts["queries"] for manifest in manifests))
    sums: dict[str, float] = {}
    for stage in total:
        for name, value in costs.stage_sums(total, stage).items():
            sums[name] = sums.get(name, 0) + value * scale
    tokens = {name: round(sums.get(name, 0)) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    starts = len({manifest.start for manifest in manifests})  # workers start once more, whatever is left
    once = sum(costs.stage_sums(starting, stage).get("seconds", 0.0) for stage in starting) / starts
    usd = None
    if prepared.prices is not None:
        usd = prepared.prices.usd(total) * scale + prepared.prices.usd(starting) / starts
    return Expected(basis, **tokens, at_most=False, seconds=sums.get("seconds", 0.0) + once, usd=usd)


def _apart(spent: costs.Totals) -> tuple[costs.Totals, costs.Totals]:
    """What queries caused, and what workers spent on starting up."""
    parts: tuple[costs.Totals, costs.Totals] = {}, {}
    for stage, components in spent.items():
        for key, sums in components.items():
            parts[key.startswith(costs.START_UP)].setdefault(stage, {})[key] = sums
    return parts


def _night_before(prepared: Prepared) -> tuple[str, list[Manifest]] | None:
    """The newest finished run of this name, if all but its log and its documents is the same."""
    if prepared.output.get(f"{prepared.config.name}/latest.json") is None:
        return None
    try:
        run = open_run(prepared.output.url(prepared.config.name))
    except (ConfigError, OSError, ValueError):
        return None
    if not run.manifests or _kind(run.record.get("identity", {})) != _kind(prepared.identity):
        return None
    return run.record["run_id"], run.manifests


def _kind(identity: dict[str, Any]) -> str:
    retrieve = {key: value for key, value in identity.get("retrieve", {}).items() if key != "retrievers"}
    return json.dumps({**identity, "log": None, "retrieve": retrieve}, sort_keys=True)


def _by_tokenizer(prepared: Prepared, left: int, texts: Sequence[str]) -> Expected | None:
    config = prepared.config
    engine = config.rewrite.engine
    if not isinstance(engine, Vllm | Openai) or not config.rewrite.planned or not texts:
        return None
    rewriter = Rewriter(config.rewrite.planned, config.rewrite.calls, {})
    requests = [request for text in texts[:SAMPLE] for request in rewriter.requests("", text)]
    counter = _counter(prepared, engine)
    scale = left / min(len(texts), SAMPLE)
    prompt = round(sum(counter.count(request.prompt) for request in requests) * scale)
    completion = round(len(requests) * scale) * config.rewrite.decoding.max_tokens
    basis = f"prompts of {min(len(texts), SAMPLE):,} queries counted ({counter.source})"
    return Expected(basis, prompt, None, completion, at_most=True, seconds=None, usd=_tokens_usd(prepared, prompt, completion))


def _counter(prepared: Prepared, engine: Vllm | Openai) -> Counter:
    if isinstance(engine, Vllm):
        return Counter((prepared.engine or {}).get("weights") or engine.model)
    return Counter(engine.model, engine.tokenizer)


def _tokens_usd(prepared: Prepared, prompt: int, completion: int) -> float | None:
    """Money for the tokens alone, where the model has a price."""
    model = _priced_model(prepared.config)
    if prepared.prices is None or model not in prepared.prices.tokens:
        return None
    return prepared.prices.usd({"rewrite": {f"x@{model}": {"prompt_tokens": prompt, "completion_tokens": completion}}})


def _priced_model(config: Config) -> str:
    engine = config.rewrite.engine
    return engine.model if isinstance(engine, Vllm | Openai) else ""
