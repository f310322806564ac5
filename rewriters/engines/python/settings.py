"""The engines that no config names by a kind: a strategy's code, and none at all."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import SerializeAsAny

from cluster.plugins.modules import identity_of
from rewriters.engines.settings import EngineSettings
from rewriters.python.given import Reads
from rewriters.python.strategy import PythonStrategy
from rewriters.settings import identity_fields


class PythonSettings(EngineSettings):
    """The code of a strategy, in the place of a model."""

    opener: ClassVar[str] = "rewriters.engines.python.engine:PythonEngine"
    is_code: ClassVar[bool] = True
    kind: Literal["python"] = "python"
    """This engine."""
    code: dict[str, str]
    """Class and version of the code."""
    strategy: SerializeAsAny[PythonStrategy]
    """With its parameters."""

    @classmethod
    def of(cls, strategy: PythonStrategy) -> PythonSettings:
        """Returns the engine that a strategy is."""
        return cls(code=identity_of(type(strategy)) or {"class": type(strategy).__qualname__}, strategy=strategy)

    @property
    def shown(self) -> str:
        """The name of the class."""
        return self.code["class"]

    @property
    def reads(self) -> Reads | None:
        """What the code is given of the original's lists."""
        return self.strategy.reads

    @property
    def most_texts(self) -> int:
        """Texts of a query that the code says it gives at most."""
        return int(self.strategy.fields.get("n", 1))

    def known_by(self) -> dict[str, Any]:
        """Returns what decides its texts: the content of the code, and the parameters that are not at their default."""
        own = {name: value for name, value in identity_fields(self.strategy).items() if name != "kind"}
        return {**self.code, "settings": own}


class NoEngineSettings(EngineSettings):
    """The common engine of a pool whose strategies are all code."""

    opener: ClassVar[str] = "rewriters.engines.python.engine:NoEngine"
    is_recorded: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    """No engine."""
