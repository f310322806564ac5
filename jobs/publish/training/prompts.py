"""How a strategy's file asks a model for its texts, and what the model answers: the two sides of a training row.

The prompt is the strategy's own, as with `calls: separate`, whatever request the night has made: the small model is asked so
afterwards, and its answers are read by the same file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cluster.errors import ConfigError, RewriterError
from jobs.job.rewriting import config_error, read_text
from jobs.runs.folder import RunFolder
from rewriters.pool import load
from rewriters.strategy import CONTEXT, Strategy, render, template_hash

DEFAULT_PROMPT = "rewrite"
"""The strategy whose prompt asks for any text, where no other is named."""
Message = dict[str, str]


def strategies_with_prompts(run: RunFolder) -> dict[str, Strategy]:
    """Returns name -> strategy of a run's pool, of those that a chat model can be trained for.

    Left out are code, rewriters whose prompt or answer has a form of their own, prompts that show columns of the log, and
    arrays of objects.

    Raises:
        ConfigError: A strategy's file cannot be read, or has another prompt now than the run asked by.
    """
    return {name: one for name, one in _pool(run).items() if _is_chat(one)}


def strategy_to_ask(run: RunFolder, name: str) -> Strategy:
    """Returns the strategy whose prompt is to ask for any text: of the run's pool, else one that is shipped.

    Raises:
        ConfigError: There is none, its answers are not one text, or the pool has another prompt than the run asked by.
    """
    found = _pool(run).get(name) or _loaded(name, run, "--prompt-of: ")
    if not _is_chat(found) or found.output != "text":
        what = f"--prompt-of {name}: its answer is not one text that a chat model writes"
        raise ConfigError("argument", f"{what}; name another, such as rewrite or general")
    return found


def asked(strategy: Strategy, query: str, context: str | None) -> list[Message]:
    """Returns the messages that ask for a strategy's texts."""
    values = {"query": query, CONTEXT: context or "(none)"}
    return [{"role": "user", "content": render(strategy.prompt, values)}]


def answered(text: str) -> list[Message]:
    """Returns the message that answers."""
    return [{"role": "assistant", "content": text}]


def written(strategy: Strategy, query: str, texts: Mapping[int, str]) -> list[str]:
    """Returns the answers in which a model gives texts, by their positions, as the strategy's file reads them.

    Answers of one text each where so many are sampled, else one; [] where a text of an object is missing, or a text of a list
    before others.
    """
    plain = {place: _without_original(strategy, query, text) for place, text in sorted(texts.items())}
    several = list(plain.values())
    if not all(several):
        return []
    if strategy.output == "text":
        return several
    wanted = len(strategy.keys) if strategy.output == "object" else strategy.n
    return [_as_one(strategy, several)] if list(plain) == list(range(1, wanted + 1)) else []


def _as_one(strategy: Strategy, texts: Sequence[str]) -> str:
    """Returns the one answer in which a model gives several texts."""
    if strategy.output == "object":
        return json.dumps(dict(zip(strategy.keys, texts, strict=True)), ensure_ascii=False)
    if strategy.output == "array":
        return json.dumps(texts, ensure_ascii=False)
    if strategy.separator is not None:
        return f"{strategy.separator} ".join(texts)
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def as_answer_of(strategy: Strategy, pool: Mapping[str, Strategy], name: str, query: str, text: str) -> str | None:
    """Returns the answer to a strategy's prompt that is searched as a text of another was, so that it is worth the same.

    Args:
        strategy: Whose prompt asks.
        pool: Strategies by name, as of `strategies_with_prompts`.
        name: Of the text's strategy.
        query: As it was asked.
        text: As it was searched.

    Returns:
        None: there is none, since the strategy searches the original before each answer, and the text was not searched so.
    """
    if not strategy.include_original:
        return text
    if name not in pool or pool[name].include_original != strategy.include_original:
        return None
    return _without_original(strategy, query, text)


def _without_original(strategy: Strategy, query: str, text: str) -> str:
    before = " ".join([" ".join(query.split())] * strategy.include_original)
    return text[len(before) :].strip() if before and text.startswith(before) else text


def _pool(run: RunFolder) -> dict[str, Strategy]:
    """Returns name -> strategy of a run's pool, by its files as they are now.

    A prompt that the run did not ask by itself, since one request asked for several strategies, may be another.
    """
    rewrite, asked_by = run.config.rewrite, {one["name"]: one["prompt_hash"] for one in run.rewriter.get("requests", ())}
    pool = {one.name: one for one in (_loaded(entry, run) for entry in (rewrite.strategies if rewrite.planned else []))}
    for name, one in pool.items():
        if _is_chat(one) and asked_by.get(name, now := template_hash(one.prompt)) != now:
            what = f"{run.storage.root}: strategy {name!r} has another prompt now than the run asked by"
            raise ConfigError("publish-run", f"{what} for its texts; put its file back as it was, or run again")
    return pool


def _loaded(entry: object, run: RunFolder, where: str = "") -> Strategy:
    config = run.config
    try:
        return load(entry, config.rewrite.language, config.log.context_column is not None, read_text)  # type: ignore[arg-type]
    except RewriterError as error:
        raise (ConfigError("argument", f"{where}{error}") if where else config_error(error)) from error


def _is_chat(strategy: Strategy) -> bool:
    objects = strategy.output == "array" and bool(strategy.keys)
    return not (strategy.is_trained or strategy.variables or objects)
