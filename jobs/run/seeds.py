"""The arms of an ablation that are answered several times, each time with a seed of its own (`ablate.seeds`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from cluster.errors import ConfigError, nearest
from jobs.chain.arms.arms import MOST_ARMS, Arm
from jobs.chain.arms.opened import digest
from jobs.config.config import Config
from jobs.job.rewriting import read_rewriting
from rewriters.rewriter import Rewriting


def with_seeds(config: Config, arms: Sequence[Arm]) -> list[Arm]:
    """Returns the arms, each followed by its further answers: `general #2`, `general #3`.

    An arm whose answers cannot differ is answered once.

    Args:
        config: of the ablation.
        arms: by `arms_of`.

    Raises:
        ConfigError: no arm's answers can differ, or not those of one that is named; a name is taken; or there are too many.
    """
    given = config.ablate.seeds
    wanted = {"*": given} if isinstance(given, int) else given
    if not wanted or wanted == {"*": 1}:
        return list(arms)
    if config.ablate.samples > 1:
        why = "ablate.seeds answers arms several times, the config itself (full), too"
        raise ConfigError("config-value", f"ablate.samples: {config.ablate.samples}: {why}; leave one out")
    names = [arm.name for arm in arms]
    for pattern in (one for one in wanted if not any(fnmatchcase(name, one) for name in names)):
        raise ConfigError("config-value", f"ablate.seeds: no arm is called {pattern!r}{nearest(pattern, names)}")
    alike: dict[str, str | None] = {}
    found: list[Arm] = []
    for arm in arms:
        number = next((many for pattern, many in wanted.items() if fnmatchcase(arm.name, pattern)), 1)
        if number > 1 and not (arm.members or arm.left_out or arm.sample):
            key = digest(arm.config.rewrite.model_dump())
            if key not in alike:
                alike[key] = why_alike(arm.config, read_rewriting(arm.config))
            if alike[key] and arm.name in wanted:
                raise ConfigError("config-value", f"ablate.seeds: {arm.name}: {alike[key]}; leave it out")
            number = 1 if alike[key] else number
            found.append(replace(arm, seeds=number))
            found += [
                replace(arm, name=f"{arm.name} #{one}", family="samples", sample=one - 1, seed_of=arm.name)
                for one in range(2, number + 1)
            ]
        else:
            found.append(arm)
    if len(found) == len(arms):
        why = next((why for why in alike.values() if why), "there is no such arm")
        raise ConfigError("config-value", f"ablate.seeds: no arm has answers that can differ: {why}; leave seeds out")
    twice = next((arm.name for arm in found if arm.seed_of is not None and arm.name in names), None)
    if twice is not None:
        raise ConfigError("config-value", f"ablate.arms.{twice}: ablate.seeds has an arm of that name; take another name")
    if len(found) > MOST_ARMS:
        raise ConfigError("config-value", f"ablate.seeds: {len(found):,} arms are more than {MOST_ARMS:,}; take fewer seeds")
    return found


def check_samples(config: Config, rewriting: Rewriting) -> None:
    """Checks that further samples can differ from the first answers: else the noise floor would be 0, whatever it is.

    Raises:
        ConfigError: they cannot.
    """
    if config.ablate.samples > 1 and (why := why_alike(config, rewriting)) is not None:
        raise ConfigError("config-value", f"ablate.samples: {config.ablate.samples}: {why}, or set samples: 1")


def why_alike(config: Config, rewriting: Rewriting) -> str | None:
    """Returns why further answers are those of before, and what would help; None: they can differ."""
    why = "nothing is rewritten, so that all answers are the same; rewrite by a model"
    for strategy in rewriting.pool:
        decoding = {**rewriting.decoding, **strategy.decoding}
        engine = strategy.engine or config.rewrite.engine
        if engine is not None and engine.is_recorded:
            why = "recorded answers are the same each time; name a live engine"
        elif decoding["temperature"] == 0:
            why = "answers at temperature 0 are all the same; raise rewrite.decoding.temperature"
        else:
            return None
    return why
