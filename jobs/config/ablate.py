"""Settings of ablations: the config's section `ablate`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cluster.settings import Settings

Subsets = Literal["none", "all", "leave_one_out", "add_one"]


class AblateSettings(Settings):
    """The arms of `ablate`, beside those that are always there: the config itself, the original, each single strategy."""

    arms: dict[str, dict[str, Any]] = {}
    """A name chosen by you -> what it changes: keys of the config in dotted form, with their values. `rewrite.select` also
    takes `{kind: oracle_k, k: 2}`: the best k strategies of each query by its judgements, a bound."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Keys of the config in dotted form -> their values; each combination is an arm, named by its values."""
    subsets: Subsets = "none"
    """Arms of subsets of `rewrite.strategies`: all (with the original, and without it), leave_one_out (all but one), add_one
    (the original and one), none."""
    samples: Annotated[int, Field(ge=1)] = 1
    """How often the config itself is an arm, each time with answers of its own: the noise floor."""
    keep: Annotated[int, Field(gt=0)] | None = None
    """Documents written per query and arm: results, and in tails/ what stands behind them; null: to the deepest rank that a
    measure of `evaluate.measures` reads."""
    sources: bool = False
    """Write the lists that each result comes from, too; makes results/ several times larger."""
