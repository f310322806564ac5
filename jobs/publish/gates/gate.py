"""What a gate says: a figure, its bound, and whether it holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import ConfigError


@dataclass(frozen=True)
class GateResult:
    """What one gate says of a version.

    Attributes:
        name: The key of `publish.gates`.
        passed: Whether it holds; also where there is nothing to hold it against.
        figure: What was measured; None: nothing could be.
        said: Figure and bound in words.
    """

    name: str
    passed: bool
    figure: float | None
    said: str

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self)


class GateError(ConfigError):
    """A version is outside of a bound, and is not promoted.

    Attributes:
        failed: The gates that do not hold, at least one.
    """

    exit_code = 1

    def __init__(self, code: str, line: str, failed: list[GateResult]) -> None:
        """Takes code and line of the first, and all that failed."""
        super().__init__(code, line)
        self.failed = failed


def refused(place: str, version: str, failed: list[GateResult]) -> GateError:
    """Returns the error of gates that do not hold; its line is of the first."""
    more = f" (and {len(failed) - 1} more gates)" if len(failed) > 1 else ""
    return GateError("publish-gate", gate_line(failed[0], f"{version} is not promoted in {place}{more}"), failed)


def gate_line(one: GateResult, what: str) -> str:
    """Returns the line of a gate that does not hold."""
    return f"publish.gates.{one.name}: {one.said}; {what}; look at the run, or set another bound"
