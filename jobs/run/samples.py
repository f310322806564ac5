"""Checks that the samples of an ablation can differ."""

from __future__ import annotations

from cluster.errors import ConfigError
from jobs.config.config import Config
from rewriters.rewriter import Rewriting


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
