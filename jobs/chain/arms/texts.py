"""The texts of arms: which requests each makes, and which arms read the same answers.

What an arm asks and reads is decided by its own config and by the config itself, never by another arm. Equal requests are sent
once, whichever arms make them: a request is known by its prompt, decoding, schema and the identity of the engine that answers
it (`jobs/chain/arms/requests.py`). A strategy is its content: the fields of its file, its parameters, the identity of its own
engine. Two that share a name are never in one reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.gates import RewriteGate
from jobs.chain.arms.opened import AnsweredBy, digest
from jobs.chain.arms.shared_work import Reading
from jobs.config.config import Config
from rewriters.calls import in_prompt_order, joint_strategies
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAll
from rewriters.strategy import Strategy

Resolve = Callable[[Config], tuple[EngineSettings | None, Rewriting, dict[str, Any]]]
_ALL = SelectAll(kind="all")


@dataclass(frozen=True)
class _Asked:
    """What an arm asks: its engines, its pool, and the joint request that it reads."""

    engines: Mapping[str, AnsweredBy]
    group: str  # what arms must have in common to read the same answers: all but their strategies
    rewriting: Rewriting
    pool: Mapping[str, str]  # strategy -> hash of its content
    joint: tuple[Strategy, ...]  # of the joint request, in the order of the prompt; empty: there is none
    is_part: bool


class ArmTexts:
    """The readings of arms."""

    def __init__(self, resolve: Resolve, config: Config) -> None:
        """Begins with the texts of no strategy.

        Args:
            resolve: Returns the settings of an arm's engine, what it rewrites with, and its identity.
            config: That of the ablation itself: its joint request is made once for all arms with some of its strategies.
        """
        self._resolve = resolve
        self.readings = [Reading("original", Rewriting(()), Rewriting(()))]
        self._alike: dict[str, list[tuple[int, Mapping[str, str]]]] = {}  # readings of every query alike, by group
        self._single: dict[str, int] = {}
        self._of_arms: dict[str, tuple[int, _Asked | None]] = {}
        self._common: tuple[str, Mapping[str, str], tuple[Strategy, ...]] = "", {}, ()
        if config.rewrite.planned and config.rewrite.calls == "joint":
            _, rewriting, identified_by = resolve(config)
            pool = in_prompt_order(rewriting.pool)
            contents = {one.name: _content(one, identified_by) for one in pool}
            joint = joint_strategies(pool)
            told = _told(config, 0, contents, joint=True)
            self._common = told, {one.name: contents[one.name] for one in joint}, joint

    def add(self, arm: Arm, config: Config, gate: RewriteGate | None = None) -> int:
        """Returns the index of an arm's texts, which are those of an earlier arm where they are the same."""
        asked = self._asked(arm, config) if config.rewrite.planned else None
        place = 0 if asked is None else self._placed(arm, config, asked, gate)
        self._of_arms[arm.name] = place, asked
        return place

    def part_of(self, arm: str) -> list[str]:
        """Returns the strategies of the joint request of which an arm reads a part; empty: it asks what its run asks."""
        asked = self._of_arms[arm][1]
        return [one.name for one in asked.joint] if asked is not None and asked.is_part else []

    def identity(self, arm: str, identified_by: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the identity of what an arm rewrites with; of one that reads a part of an answer with the request for it."""
        asked = self._of_arms[arm][1]
        if asked is None or not asked.is_part:
            return dict(identified_by)
        requests = Rewriter(replace(asked.rewriting, pool=asked.joint, select=_ALL, rules=None)).identity()["requests"]
        return dict(identified_by) | {"part_of": requests}

    def cuts(self, reading: int) -> Any:
        """Returns the cuts of the strategies of a reading."""
        return self.readings[reading].rewriting.cuts

    def _asked(self, arm: Arm, config: Config) -> _Asked:
        settings, rewriting, identified_by = self._resolve(config)
        assert settings is not None
        pool = in_prompt_order(rewriting.pool)
        contents = {one.name: _content(one, identified_by) for one in pool}
        is_joint = config.rewrite.calls == "joint" and not config.rewrite.select.in_request
        told = _told(config, arm.sample, contents, joint=is_joint)
        joint = joint_strategies(pool) if is_joint else ()
        own = {one.name: contents[one.name] for one in joint}
        common_told, common_contents, common = self._common
        is_part = bool(own) and told == common_told and own.items() < common_contents.items()
        engines = {"": AnsweredBy(settings, identified_by["engine"])}
        for one in pool:
            if one.engine is not None:
                engines[one.name] = AnsweredBy(one.engine, identified_by["engines"][one.name])
        group = digest([told, common_contents if is_part else own])
        return _Asked(engines, group, rewriting, contents, common if is_part else joint, is_part)

    def _placed(self, arm: Arm, config: Config, asked: _Asked, gate: RewriteGate | None) -> int:
        """Returns the index of a reading with an arm's texts; makes it unless it is there."""
        group = digest([asked.group, gate and gate.key])
        if _reads_alike(config):
            known = self._alike.setdefault(group, [])
            for place, pool in known:
                if asked.pool.items() <= pool.items():
                    return place
            known.append((len(self.readings), asked.pool))
        else:
            key = digest([group, asked.pool, config.rewrite.model_dump()])
            if key in self._single:
                return self._single[key]
            self._single[key] = len(self.readings)
        whole = asked.rewriting
        if asked.is_part:
            more = tuple(one for one in asked.joint if one.name not in asked.pool)
            whole = replace(whole, pool=(*whole.pool, *more), select=_ALL, rules=None)
        reading = Reading(arm.name, asked.rewriting, whole, arm.sample, asked.engines, gate)
        self.readings.append(reading)
        return len(self.readings) - 1


def _told(config: Config, sample: int, contents: Mapping[str, str], *, joint: bool) -> str:
    """Returns what the requests of an arm have in common but for its strategies; where the LLM chooses, those, too."""
    rewrite = config.rewrite
    told = rewrite.model_dump(exclude={"strategies", "select", "store", "gate"})  # a gate changes no request
    chosen = None if joint or not rewrite.select.in_request else [contents, rewrite.select.model_dump()]
    return digest([sample, told, chosen])


def _content(strategy: Strategy, identified_by: Mapping[str, Any]) -> str:
    """Returns the hash of all that a strategy is: its file with the parameters, and the engine of its own."""
    own = identified_by.get("engines", {}).get(strategy.name)
    return digest([strategy.model_dump(mode="json"), own])


def _reads_alike(config: Config) -> bool:
    """Returns whether an arm reads the same texts of a strategy as every other arm with the same requests and gate."""
    return not config.rewrite.chooses and config.rewrite.guards.near_duplicates == "count"


def gate_of(config: Config, retrievers: Mapping[str, str]) -> RewriteGate | None:
    """Returns the gate of an arm, if it has one; `retrievers`: name -> key of `SharedWork.retrievers`."""
    settings = config.rewrite.gated
    return None if settings is None else RewriteGate(settings, retrievers[settings.by])
