"""The settings of a reranker's budget."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from cluster.settings import Settings


class BudgetSettings(Settings):
    """How many pairs of a query are scored, where not all candidates are: those that come first by fusion."""

    pairs: Annotated[int, Field(gt=0)] | None = None
    """At most, and no fewer than `rerank.keep`; null: all candidates."""
    settled: Annotated[int, Field(gt=0)] | None = None
    """Stop where so many pairs in a row have brought nothing into the first `rerank.keep`; null: this stops nothing."""
    proven: bool = False
    """Of blend: stop where the first `rerank.keep` and their order are proven, whatever the others would score."""
    step: Annotated[int, Field(gt=0)] = 5
    """Pairs of a query between two looks at its scores."""

    @model_validator(mode="after")
    def _says_something(self) -> BudgetSettings:
        if self.pairs is None and self.settled is None and not self.proven:
            raise ValueError("says nothing; give pairs, settled or proven, or remove budget")
        if self.step != 5 and self.settled is None and not self.proven:
            raise ValueError("step is of settled and proven, and there is neither; remove it")
        return self
