"""The contract of rerankers."""

import json
from collections.abc import Sequence

import numpy as np

from dmqr.testing.settings import HOSTILE, SettingsContract
from retrievers.reranker import Reranker, open_reranker, reranker_identity
from retrievers.rerankers.settings import RerankerSettings


class RerankerContract(SettingsContract[RerankerSettings]):
    """The contract of rerankers."""

    query = "light of a lamp at sea"
    passages: Sequence[str] = (
        "Lighthouses. A lens threw the light of a small lamp across the sea.", "Bread. Yeast is in no hurry.", "",
        "Tides. The moon pulls the sea twice a day.",
    )  # fmt: skip
    least_difference = 1e-5
    """Between scores of one pair in two batches: weights add up in another order."""

    def opened(self) -> Reranker:
        """Returns an open reranker; may be overridden to open it once."""
        reranker = open_reranker(self.settings())
        assert reranker is not None, "kind: none is no reranker"
        return reranker

    def test_a_pair_has_one_finite_score(self) -> None:
        """In the order of the pairs, as float64."""
        scores = self.opened().score([self.query] * len(self.passages), list(self.passages))
        assert scores.shape == (len(self.passages),)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all(), "a score is a number"
        assert len(set(scores.tolist())) > 1, "the passages of this contract differ, so do their scores; set others"

    def test_a_pair_has_the_same_score_alone_and_in_a_batch(self) -> None:
        """The pairs that are scored in one call depend on the shard, on the arms, and on what is stored."""
        reranker, passages = self.opened(), [*self.passages, self.passages[0]]
        batch = reranker.score([self.query] * len(passages), passages)
        assert batch[0] == batch[-1]
        alone = [float(reranker.score([self.query], [one])[0]) for one in passages]
        np.testing.assert_allclose(alone, batch, atol=self.least_difference)

    def test_nothing_has_no_scores(self) -> None:
        """A shard may find nothing."""
        assert self.opened().score([], []).shape == (0,)

    def test_hostile_texts_are_no_errors(self) -> None:
        """On either side of a pair."""
        reranker = self.opened()
        for queries, passages in ((HOSTILE, [self.passages[0]] * len(HOSTILE)), ([self.query] * len(HOSTILE), HOSTILE)):
            assert np.isfinite(reranker.score(list(queries), list(passages))).all()

    def test_identity_is_known_before_anything_is_loaded(self) -> None:
        """JSON values, the same each time: scores are stored under it."""
        planned = reranker_identity(self.settings())
        assert json.loads(json.dumps(planned)) == planned == reranker_identity(self.settings())
