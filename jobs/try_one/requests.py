"""The requests of a query that was tried: what was sent, what came back, and what it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from jobs.chain.arms.requests import key_in_reading
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.completions import REUSED, Completions
from jobs.chain.journal import row_key
from jobs.chain.pipeline import ASKING
from jobs.chain.steps.asked_about import asked_about
from jobs.config.config import Config
from jobs.tables import LOST
from rewriters.query import Query
from rewriters.rewriter import Rewriter

Row = dict[str, Any]
_TOLD = ("model", "tier")
_SPENT = ("prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "requests")


def all_requests(
    rewriter: Rewriter, work: SharedWork, store: Completions, config: Config, row: Row, texts: Mapping[str, str]
) -> list[Row]:
    """Returns each request with its prompt and its raw answer, or the error in place of one.

    Those of rewriting stand first, in the order of their costs, then those of each later step, by document in order of rank.
    Code that makes the texts of a strategy is asked nothing.

    Args:
        rewriter: Of the config.
        work: Of the one arm.
        store: The completions of the query.
        config: Of the job.
        row: The query after all stages.
        texts: doc_id -> text, of the results in order.
    """
    of_rewriting, answered = _of_rewriting(rewriter, work, store, row)
    made = [one for one in store.rows() if row_key(one) not in answered]
    return of_rewriting + _of_steps(config, row, texts, made) + list(_failed(row))


def _of_rewriting(rewriter: Rewriter, work: SharedWork, store: Completions, row: Row) -> tuple[list[Row], set[Any]]:
    """Returns the requests of rewriting, and the keys of those that were answered."""
    given = {name: value for name, value in (row.get("values") or {}).items() if value is not None}
    query = Query(row["query_id"], row["query"], row.get("context"), given)
    key_of = partial(key_in_reading, work.readings[-1])
    spent: dict[str, list[Row]] = {}  # request -> the costs of its samples
    for entry in row["costs"]:
        if entry["stage"] == "rewrite" and entry["error"] != LOST:
            spent.setdefault(entry["component"], []).append(entry)
    asked = rewriter.question(query)
    told = store.get([key_of(asked)]).get(key_of(asked)) if asked else None
    choice = rewriter.choose(query, told.completion if told else None)
    requests = [*([asked] if asked else []), *rewriter.requests(query, choice)]
    requests = [one for one in requests if one.name in spent]  # none where the gate lets the query not be rewritten
    answered = store.get([key_of(request) for request in requests])
    while more := rewriter.again(
        query, [(one, answered[key_of(one)].completion) for one in requests if key_of(one) in answered], choice
    ):
        more = [one for one in more if one not in requests]
        if not more:  # the try has failed
            break
        requests += more
        answered |= store.get([key_of(one) for one in more])
    found = []
    for request in requests:
        made, cost = answered.get(key_of(request)), spent[request.name].pop(0)
        values: Row = {"request": request.name, "prompt": request.prompt, "prompt_hash": request.prompt_hash}
        values |= {"schema": request.sent_schema, "decoding": dict(request.decoding), "sample": request.sample}
        values |= {"answer": None, "finish_reason": None, "error": cost["error"], "message": None, "document": None}
        if made is not None:
            values |= {"answer": made.completion.text, "finish_reason": made.completion.finish_reason}
        elif (error := _error_of(row["errors"], request.name, cost["error"])) is not None:
            values |= {"answer": error["raw"], "message": error["message"]}
        found.append(values | {name: cost[name] for name in (*_TOLD, *_SPENT)} | {"reused": bool(cost["reused"])})
    return found, set(answered)


def _of_steps(config: Config, row: Row, texts: Mapping[str, str], made: Sequence[Row]) -> list[Row]:
    """Returns the answered requests of the steps after retrieval, each from its own stored completion."""
    about = asked_about(config, texts, row["query"], (row["correction"] or {}).get("question"))
    stages = {name: place for place, name in enumerate(dict.fromkeys(cost["component"] for cost in row["costs"]))}
    ranks = {doc_id: place for place, doc_id in enumerate(texts)}
    found = [_step_request(one, about.get(row_key(one).variables.partition("/")[0])) for one in made]
    return sorted(
        found, key=lambda one: (stages.get(one["request"], len(stages)), one["sample"], ranks.get(one["document"], len(ranks)))
    )


def _step_request(made: Row, document: str | None) -> Row:
    """Returns an answered request of a step; what was taken from the store has cost nothing here."""
    reused = made["start"] == REUSED
    values = {name: made[name] for name in ("request", "prompt", "prompt_hash", "sample", "finish_reason", *_TOLD)}
    more = {"schema": None, "decoding": {}, "answer": made["text"], "error": None, "message": None, "document": document}
    spent = {name: made["attempts" if name == "requests" else name] for name in _SPENT}
    return values | more | (dict.fromkeys(spent, 0) if reused else spent) | {"reused": reused}


def _failed(row: Row) -> Iterator[Row]:
    """Yields the requests of later steps that were not answered; their prompts are not kept."""
    later = {*ASKING} - {"rewrite"}
    errors = [one for one in row["errors"] if one["stage"] in later]
    for cost in row["costs"]:
        if cost["stage"] not in later or cost["error"] in (None, LOST):
            continue
        said = next((one for one in errors if (one["component"], one["reason"]) == (cost["component"], cost["error"])), None)
        if said is not None:
            errors.remove(said)
        values = dict.fromkeys(("prompt", "prompt_hash", "schema", "finish_reason", "document"))
        message = None if said is None else said["message"]
        values |= {"request": cost["component"], "sample": 0, "decoding": {}, "error": cost["error"], "message": message}
        yield values | {"answer": None, "reused": False} | {name: cost[name] for name in (*_TOLD, *_SPENT)}


def _error_of(errors: list[Row], request: str, reason: str | None) -> Row | None:
    """Returns the error of a request that was not answered: its own strategy's, else one of the same reason."""
    of_rewriting = [error for error in errors if error["stage"] == "rewrite"]
    own = [error for error in of_rewriting if error["component"] == request]
    return next(iter([*own, *(error for error in of_rewriting if error["reason"] == reason)]), None)
