"""Which arm each arm is compared with: the one baseline of all, or those of families of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from cluster.errors import ConfigError, nearest
from jobs.config.settings import EvaluateSettings

MOST_PAIRED = 60
"""Arms of which every two are compared, at most: 1,770 pairs."""


def arm_baselines(settings: EvaluateSettings, arms: Sequence[str], also: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns arm -> the arm that it is compared with; an arm that is compared with none is its own.

    The first pattern of `evaluate.baselines` that an arm's name fits decides; without one it is `evaluate.baseline`. An arm
    that others are compared with is its own, unless a pattern that it fits says another one.

    Args:
        settings: the baselines, by the names of arms.
        arms: their names.
        also: further name of an arm -> the arm.

    Raises:
        ConfigError: a baseline is no arm, or a pattern fits none.
    """
    also = also or {}
    names = [*arms, *also]

    def arm_of(name: str, where: str) -> str:
        if name not in names:
            raise ConfigError(
                "config-value",
                f"{where}: {name!r} is no arm{nearest(name, names)}; set {where.partition(':')[0]} to one of them",
            )
        return also.get(name, name)

    by_pattern = {of: arm_of(name, f"evaluate.baselines: {of}") for of, name in settings.baselines.items()}
    for pattern in by_pattern:
        if not any(fnmatchcase(name, pattern) for name in names):
            what = f"evaluate.baselines: no arm is called {pattern!r}{nearest(pattern, names)}"
            raise ConfigError("config-value", f"{what}; name an arm, or a family like 'bm25*'")
    found = {arm: next((base for of, base in by_pattern.items() if fnmatchcase(arm, of)), None) for arm in arms}
    named = set(by_pattern.values())
    default = None
    if any(base is None and arm not in named for arm, base in found.items()):
        default = arm_of(settings.baseline, "evaluate.baseline")
    return {arm: base or (arm if arm in named or default is None else default) for arm, base in found.items()}


def check_pairs(settings: EvaluateSettings, arms: int) -> None:
    """Checks that every two arms can be compared, where that is asked for.

    Raises:
        ConfigError: there are too many.
    """
    if settings.pairs and arms > MOST_PAIRED:
        what = f"evaluate.pairs: {arms:,} arms are {arms * (arms - 1) // 2:,} pairs, and {MOST_PAIRED} arms are the most"
        raise ConfigError("config-value", f"{what}; take fewer arms, or leave pairs out")
