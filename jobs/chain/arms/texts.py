"""The texts of arms: which requests each makes, and which arms read the same answers.

What an arm asks and reads is decided by its own config and by the config itself, never by another arm. Equal requests are sent
once, whichever arms make them: a request is known by its prompt, decoding, schema and the identity of the engine that answers
it (`jobs/chain/arms/requests.py`). A strategy is its content: the fields of its file, its parameters, the identity of its own
engine. Two that share a name are never in one reading.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.chain.arms.resources import AnsweredBy, digest
from jobs.chain.arms.shared_work import Reading, RewriteGate
from jobs.job.prepare import Prepared
from rewriters.calls import in_prompt_order, joint_strategies
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAll
from rewriters.strategy import Strategy

_ALL = SelectAll(kind="all")


class ArmTexts:
    """The readings of arms."""

    def __init__(self, first: Prepared) -> None:
        """Begins with the texts of no strategy; the joint request of the `first` arm is made once for all with a part of it."""
        self.readings = [Reading("original", Rewriting(()), Rewriting(()))]
        self._known: dict[str, list[tuple[int, Mapping[str, str]]]] = {}  # what arms share -> readings, with their strategies
        self._common: tuple[Strategy, ...] = ()
        if first.config.rewrite.planned and first.config.rewrite.calls == "joint":
            self._common = joint_strategies(in_prompt_order(first.rewriting.pool))
            contents = _contents(first)
            self._common_contents = {one.name: contents[one.name] for one in self._common}
            self._common_told = _told(first, 0, None)

    def add(self, name: str, arm: Prepared, sample: int, gate: RewriteGate | None) -> tuple[int, tuple[Strategy, ...]]:
        """Returns the index of an arm's texts, which are those of an earlier arm where they are the same.

        Beside it, the strategies of the joint request of which the arm reads a part; none: it asks what its run asks.
        """
        rewrite, rewriting = arm.config.rewrite, arm.rewriting
        if not rewrite.planned:
            return 0, ()
        contents = _contents(arm)
        is_joint = rewrite.calls == "joint" and not rewrite.select.in_request
        told = _told(arm, sample, contents if rewrite.select.in_request else None)
        own = {one.name: contents[one.name] for one in joint_strategies(in_prompt_order(rewriting.pool))} if is_joint else {}
        is_part = bool(own and self._common) and told == self._common_told and own.items() < self._common_contents.items()
        shared = [told, self._common_contents if is_part else own, gate and [gate.settings.model_dump(), gate.retriever]]
        if rewrite.chooses or rewrite.guards.near_duplicates != "count":  # texts of a strategy depend on what else there is
            shared += [contents, rewrite.model_dump()]
        known, part_of = self._known.setdefault(digest(shared), []), self._common if is_part else ()
        for index, strategies in known:
            if contents.items() <= strategies.items():
                return index, part_of
        known.append((len(self.readings), contents))
        more = tuple(one for one in part_of if one.name not in contents)
        asked = replace(rewriting, pool=(*rewriting.pool, *more), select=_ALL, rules=None) if is_part else rewriting
        self.readings.append(Reading(name, rewriting, asked, sample, _engines(arm), gate))
        return len(self.readings) - 1, part_of


def rewriting_identity(arm: Prepared, part_of: tuple[Strategy, ...]) -> dict[str, Any]:
    """Returns the identity of what an arm rewrites with; of one that reads a part of an answer with the request for it."""
    if not part_of:
        return arm.identity["rewrite"]
    requests = Rewriter(replace(arm.rewriting, pool=part_of, select=_ALL, rules=None)).identity()["requests"]
    return arm.identity["rewrite"] | {"part_of": requests}


def _engines(arm: Prepared) -> dict[str, AnsweredBy]:
    assert arm.engine is not None
    own = {one.name: one.engine for one in in_prompt_order(arm.rewriting.pool) if one.engine is not None}
    known = arm.identity["rewrite"]
    return {"": AnsweredBy(arm.engine, known["engine"])} | {
        name: AnsweredBy(settings, known["engines"][name]) for name, settings in own.items()
    }


def _told(arm: Prepared, sample: int, contents: Mapping[str, str] | None) -> str:
    """Returns the part of an arm's requests that its strategies do not decide; `contents`: theirs, where the LLM chooses."""
    rewrite = arm.config.rewrite
    common = rewrite.model_dump(exclude={"strategies", "select", "store", "gate"})  # a gate changes no request
    return digest([sample, common, contents and [contents, rewrite.select.model_dump()]])


def _contents(arm: Prepared) -> dict[str, str]:
    """Returns strategy -> hash of its file, its parameters and its own engine."""
    own = arm.identity["rewrite"].get("engines", {})
    return {one.name: digest([one.model_dump(mode="json"), own.get(one.name)]) for one in in_prompt_order(arm.rewriting.pool)}
