"""The rewriting stage on vLLM beside bare `LLM.generate`: the same prompts, a tiny model, as many tokens of each answer.

Each time a process of its own; timed from a warm engine on, so that CPU seconds, which have its start in them, are not told.
"""

import importlib.util

from vllm_rate import TINY, Task, in_turns

from limits.rounds import Row, Spent, Unmeasured, middle

TOKENS = 32


def measure(quick: bool) -> list[Row]:
    """Returns one row."""
    if importlib.util.find_spec("vllm") is None:
        raise Unmeasured("vllm is not installed")
    queries, spent = 1000, dict[str, list[Spent]]()
    task = Task("", queries, TOKENS, False, "ray", TINY)
    for name, done in in_turns(["stage", "bare"], task, 1 if quick else 2):
        spent.setdefault(name, []).append(Spent(done.seconds, None))
    what = f"rewriting, {queries:,} prompts of a tiny model"
    return [Row(what, "bare LLM.generate", queries, "prompts", middle(spent["stage"]), middle(spent["bare"]))]
