"""An error of an arm names the arm, and says what to do about the arm: the config itself may be right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.errors import ClusterError, ConfigError, RetrieverError, RewriterError
from jobs.chain.arms.arms import FULL, Arm

_OF_INDEXES = ("index-missing", "index-other", "index-damaged")
_OWN_INDEX = (
    "give the arm an index of its own (retrieve.retrievers.NAME.index), built with a config that names that index alone: "
    "dmqr index CONFIG --corpus PATH"
)


@contextmanager
def naming(arm: Arm) -> Iterator[None]:
    """Puts the name of an arm before the line of an error in its body, unless the arm is the config itself.

    Of an index that does not fit, the remedy is one that leaves the config's own index as it is.
    """
    try:
        yield
    except (ConfigError, RetrieverError, RewriterError, ClusterError) as error:
        if arm.name == FULL:
            raise
        line = error.line
        if error.code in _OF_INDEXES and arm.changes.keys() - {"rewrite.strategies", "rewrite.select"}:
            line = f"{line.rpartition('; ')[0] or line}; {_OWN_INDEX}"
        raise type(error)(error.code, f"ablate: arm {arm.name!r}: {line}") from error
