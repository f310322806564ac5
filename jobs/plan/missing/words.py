"""What is missing, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.plan.missing.amounts import Amount, words
from jobs.terminal.formats import clock, money, queries


def missing_rows(missing: Mapping[str, Any] | None, left: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table of `plan`; `left`: the most that there may be of what is not looked up."""
    if missing is None:
        return
    looked = f"of the {queries(missing['queries'])} that are left"
    if missing["looked"] < missing["queries"]:
        looked += f", by {missing['looked']:,} of them"
    yield "missing", f"{looked}{'; what further rounds search and score is apart' if left.get('rounds') else ''}"
    for kind, one in missing["kinds"].items():
        if one["number"]["high"] or one["reused"]:
            yield f"  {kind}", "; ".join(_parts(one))
            if one["why"]:
                part = f"of {sum(one['why'].values()):,} that were looked up: " if one["drawn"] else ""
                yield "", part + ", ".join(f"{why} {number:,}" for why, number in one["why"].items())
    if sample := missing.get("sample"):
        usd = "" if sample["usd"] is None else f", {money(sample['usd'])}"
        yield "  sample", f"{queries(sample['queries'])} were paid for{usd}, and are kept: {sample['folder']}"
    said = []
    if missing["usd"] is not None:
        apart = f", {' and '.join(missing['unpriced'])} apart" if missing.get("unpriced") else ""
        said.append(words(Amount(**missing["usd"]), money) + apart)
    if missing["wall_seconds"]:
        said.append(f"about {clock(missing['wall_seconds'])} on the wall, by the pool that works longest")
    if said:
        yield "  together", "; ".join(said)


def _parts(one: Mapping[str, Any]) -> Iterator[str]:
    stored = f", {'about ' if one['about'] else ''}{one['reused']:,} are stored" if one["reused"] else ""
    yield words(Amount(**one["number"])) + stored
    if one.get("prompt_tokens") is not None and one["prompt_tokens"]["high"]:
        yield f"{words(Amount(**one['prompt_tokens']))} tokens of prompts"
    if one.get("completion_tokens") is not None and one["completion_tokens"]["high"]:
        yield f"{words(Amount(**one['completion_tokens']))} written"
    if one["seconds"] is not None and one["seconds"]["expected"]:
        yield f"about {clock(one['seconds']['expected'])} of work, {clock(one['wall_seconds'])} on the wall"
    if one["usd"] is not None and one["usd"]["high"]:
        yield words(Amount(**one["usd"]), money) + ("" if one["seconds"] else ", the time of workers apart")
    if one["note"]:
        yield f"not looked up: {one['note']}"
