"""The arms of an ablation, each a config of its own: those that are always there, and those that the config names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from typing import Any, Literal

from pydantic import ValidationError

from cluster.errors import ConfigError, nearest
from cluster.settings import REQUIRED
from jobs.config.config import Config
from jobs.config.load import problem
from jobs.config.settings import Subsets
from jobs.job.measure_checks import deepest_rank
from retrievers.fusion import takes_part
from retrievers.lists import BESIDE
from retrievers.rerankers.settings import RERANKERS, RerankerSettings
from rewriters.pool import named

Family = Literal["run", "always", "arms", "grid", "subsets", "samples"]

RUN = "run"  # the only arm of a run
FULL, BASELINE = "full", "original"
STEPS = ("iterate", "grade", "web", "answer")  # sections that an arm may lack, or have where the others lack it
SECTIONS = ("corpus", "rewrite", "retrieve", "fuse", "rerank", *STEPS)  # of the config, that arms may change
MOST_ARMS = 5_000
_ORIGINAL_OFF = {"fuse.weights.original": 0}


@dataclass(frozen=True)
class Arm:
    """One variant of the config.

    Attributes:
        name: Of the arm.
        family: Where it comes from: always there, `ablate.arms`, `ablate.grid`, `ablate.subsets` or `ablate.samples`.
        config: As a run of this arm alone would have it.
        changes: What it changes: dotted key of the config -> value.
        sample: From 0, of several answers to the same requests.
        members: Of an oracle: the arms of which the best is chosen for each query. Such an arm has no results of its own.
        k: Of an oracle: the number of strategies.
        also: Names of generated arms that are this one, and are not made.
        same_as: The earlier arm that this one is under another name.
    """

    name: str
    family: Family
    config: Config
    changes: Mapping[str, Any] = field(default_factory=dict)
    sample: int = 0
    members: tuple[str, ...] = ()
    k: int | None = None
    also: tuple[str, ...] = ()
    same_as: str | None = None

    @property
    def strategies(self) -> list[str]:
        """Returns the names of the strategies that rewrite."""
        return self.config.rewrite.planned

    @property
    def with_original(self) -> bool:
        """Returns True if any list of the original has a weight above 0."""
        return any(takes_part(self.config.fuse, BASELINE, name, 1.0) for name in self.config.retrieve.route(BASELINE))

    def values(self) -> dict[str, Any]:
        """Returns the arm as JSON-able values."""
        return {
            "name": self.name,
            "family": self.family,
            "strategies": self.strategies,
            "original": self.with_original,
            "changes": dict(self.changes),
            "k": self.k,
            "members": list(self.members),
            "also": list(self.also),
            "same_as": self.same_as,
        }


def arms_of(config: Config) -> list[Arm]:
    """Returns the arms of a config, those that are always there first.

    Raises:
        ConfigError: An arm changes what decides the queries, an unknown key or a wrong value, or there are too many.
    """
    maker = _Maker(config)
    many = prod(len(values) for values in config.ablate.grid.values())
    many += 2 ** (len(maker.pool) + 1) if config.ablate.subsets == "all" else 0
    if many > MOST_ARMS:
        remedy = "make the grid smaller, or take other subsets"
        raise ConfigError("config-value", f"ablate: {many:,} arms are more than {MOST_ARMS:,}; {remedy}")
    alone = (maker.subset([entry], original=False) for entry in maker.pool)
    for name, changes in ((FULL, {}), (BASELINE, {"rewrite.strategies": []}), *alone):
        maker.add(name, "always", changes)
    for name, changes in maker.subsets(config.ablate.subsets):
        maker.add(name, "subsets", changes)
    for number in range(2, config.ablate.samples + 1):
        maker.add(f"{FULL} #{number}", "samples", {}, sample=number - 1)
    for name, changes in config.ablate.arms.items():
        maker.add_named(name, changes)
    for name, path in config.ablate.runs.items():
        maker.add_run(name, path)
    for name, changes in _grid(config.ablate.grid):
        maker.add(name, "grid", changes, where="ablate.grid")
    return list(maker.arms.values())


def configs_of(arms: Iterable[Arm]) -> list[Config]:
    """Returns the configs of arms, without those whose results are other arms'."""
    return [arm.config for arm in arms if not arm.members]


class _Maker:
    """Collects arms under distinct names."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pool = config.rewrite.strategies if config.rewrite.planned else []
        self.selects = config.rewrite.chooses  # the gate is that of the config in each of them
        self.arms: dict[str, Arm] = {}
        self._values = config.model_dump()

    def add(
        self, name: str, family: Family, changes: Mapping[str, Any], sample: int = 0, where: str = "ablate.subsets"
    ) -> None:
        """Adds an arm, unless a generated one of that name is there."""
        if family != "arms" and name in self.arms:
            return
        alone = family in ("always", "subsets") and _ORIGINAL_OFF.items() <= changes.items()
        config = self._config(f"{where}: {name}", changes, without_original=alone)
        self.arms[name] = Arm(name, family, config, dict(changes), sample)

    def add_run(self, name: str, path: str) -> None:
        """Adds an arm whose results are the lists of a run file: nothing cuts, weighs or orders them anew.

        Texts of documents, for a judge, are those of the config's own indexes.
        """
        where, retriever = f"ablate.runs.{name}", re.sub(r"[^\w-]", "_", name)  # a dot would part keys
        self._check_new(where, name)
        if retriever in self.config.retrieve.retrievers:
            raise ConfigError("config-value", f"{where}: a retriever is called {retriever!r}; choose another name")
        depth = max(self.config.ablate.keep or 0, deepest_rank(self.config.evaluate.measures))
        lists = {f"retrieve.retrievers.{retriever}": {"kind": "trec", "path": path}, "retrieve.routes": {BASELINE: [retriever]}}
        fuse = {"method": "rrf", "depth": depth, "keep": depth, "weights": {}, "retriever_weights": {}, "redundancy": "none",
                "duplicates": "keep", "original_floor": None}  # fmt: skip
        changes: dict[str, Any] = {"rewrite.strategies": [], "rerank": {"kind": "none"}, **lists}
        changes |= {"retrieve.depth": depth} if depth > self.config.retrieve.depth else {}
        changes |= {f"fuse.{key}": value for key, value in fuse.items() if self._values["fuse"][key] != value}
        changes |= {step: None for step in STEPS if self._values[step] is not None}
        changes |= {"rewrite.gate": None} if self._values["rewrite"]["gate"] is not None else {}
        self.add(name, "arms", changes, where="ablate.runs")

    def add_named(self, name: str, changes: Mapping[str, Any]) -> None:
        """Adds an arm that the config names; an oracle brings the arms of which it chooses."""
        where = f"ablate.arms.{name}"
        self._check_new(where, name)
        select = changes.get("rewrite.select")
        if not (isinstance(select, Mapping) and select.get("kind") == "oracle_k"):
            self.add(name, "arms", changes, where="ablate.arms")
            return
        if select.keys() != {"kind", "k"} or len(changes) > 1:
            problem = "oracles change only rewrite.select: {kind: oracle_k, k: 2}; remove the rest"
            raise ConfigError("config-value", f"{where}: {problem}")
        k, pool = select["k"], self.pool
        if not isinstance(k, int) or not 1 <= k <= len(pool):
            raise ConfigError("config-value", f"{where}: k must be from 1 to {len(pool)} (strategies), found {k!r}")
        subsets = dict(self.subset(chosen, original=True) for chosen in combinations(pool, k))
        for member, changed in subsets.items():
            self.add(member, "subsets", changed)
        self.arms[name] = Arm(name, "arms", self.config, dict(changes), members=tuple(subsets), k=k)

    def _check_new(self, where: str, name: str) -> None:
        if name in self.arms:
            raise ConfigError("config-value", f"{where}: another arm has this name; choose another name")

    def subset(self, entries: Sequence[Any], *, original: bool) -> tuple[str, dict[str, Any]]:
        """Returns name and changes of an arm of some strategies for every query, with or without the original's lists."""
        changes: dict[str, Any] = {"rewrite.strategies": list(entries)} | ({} if original else _ORIGINAL_OFF)
        changes |= {"rewrite.select": {"kind": "all"}} if self.selects else {}
        if original and len(entries) == len(self.pool) and not self.selects:
            return FULL, changes
        return "+".join([BASELINE] * original + [named(entry).name for entry in entries]), changes

    def subsets(self, kind: Subsets) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields names and changes of the arms of `ablate.subsets`."""
        pool = self.pool
        if kind == "all":
            for original in (True, False):
                for k in range(1, len(pool) + 1):
                    for entries in combinations(pool, k):
                        yield self.subset(entries, original=original)
        elif kind == "leave_one_out" and len(pool) > 1:
            for left_out in pool:
                rest = [entry for entry in pool if entry is not left_out]
                yield f"without {named(left_out).name}", self.subset(rest, original=True)[1]
        elif kind == "add_one":
            yield from (self.subset([entry], original=True) for entry in pool)

    def _config(self, where: str, changes: Mapping[str, Any], *, without_original: bool) -> Config:
        values = deepcopy(self._values)
        if without_original:  # nor its lists by single retrievers, which have weights of their own
            for key in [key for key in values["fuse"]["weights"] if key.startswith((f"{BASELINE}/", BESIDE))]:
                del values["fuse"]["weights"][key]
        if "rewrite.strategies" in changes:
            _without_others(values, changes["rewrite.strategies"], self.pool, where)
        for path, value in sorted(changes.items(), key=lambda one: one[0] != "rerank.kind"):  # other keys are of the new kind
            _set(values, path, value, where)
        try:
            return Config.model_validate(values, context=REQUIRED)
        except ValidationError as error:
            raise ConfigError(*problem(where, error)) from error


def _without_others(values: dict[str, Any], entries: Any, pool: Sequence[Any], where: str) -> None:
    """Removes the weights and routes of the pool's strategies that an arm does not have."""
    try:
        others = {named(entry).name for entry in pool} - {named(entry).name for entry in entries}
    except (TypeError, ValueError) as error:
        raise ConfigError("config-value", f"{where}: rewrite.strategies: should be a list of strategies: {error}") from error
    for keys in (values["fuse"]["weights"], values["retrieve"]["routes"]):
        for key in [key for key in keys if key.partition("/")[0].removeprefix(BESIDE) in others]:
            del keys[key]


def _grid(grid: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields names and changes of all combinations of a grid's values."""
    if not grid:
        return
    paths = list(grid)
    shown = [_short(path, paths) for path in paths]
    for values in product(*(grid[path] for path in paths)):
        yield (
            " ".join(f"{name}={_word(value)}" for name, value in zip(shown, values, strict=True)),
            dict(zip(paths, values, strict=True)),
        )


def _short(path: str, paths: Sequence[str]) -> str:
    """Returns the last parts of a key, as many as tell it from the others."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        tail = parts[-count:]
        if sum(other.split(".")[-count:] == tail for other in paths) == 1:
            return ".".join(tail)
    return path


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(str(value.get("kind")) if key == "kind" else f"{key}:{_word(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ",".join(map(_word, value)) or "none"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _set(values: dict[str, Any], path: str, value: Any, where: str) -> None:
    """Sets one dotted key; a value that stands for a kind (`rerank.kind`) keeps the section's other keys.

    But those of a plug-in: of another reranker than that what all have is kept.
    """
    keys = path.split(".")
    if keys[0] not in SECTIONS or (len(keys) < 2 and keys[0] not in (*STEPS, "rerank")):
        why = f"{keys[0]} decides the queries, and arms are compared over the same ones" if keys[0] == "log" else (
            f"arms change keys of {', '.join(SECTIONS)}{nearest(keys[0], [one for one in SECTIONS if one != keys[0]])}"
        )  # fmt: skip
        raise ConfigError("config-value", f"{where}: {path}: {why}; remove it")
    if keys == ["retrieve", "store"]:
        raise ConfigError("config-value", f"{where}: {path}: all arms share one store; set it beside ablate")
    for depth, key in enumerate(keys[:-1]):
        if values.get(key) is None:
            values[key] = {}
        values = values[key]
        if not isinstance(values, dict):
            raise ConfigError("config-value", f"{where}: {path}: {'.'.join(keys[: depth + 1])} is a value, it has no keys")
    if keys == ["rerank", "kind"] and {str(value), str(values["kind"])} - RERANKERS.classes.keys():
        for key in values.keys() - RerankerSettings.model_fields.keys():
            del values[key]
    values[keys[-1]] = deepcopy(value)
