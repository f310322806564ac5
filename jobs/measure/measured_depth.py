"""How deep a measure looked: R@100 of a list that was cut after ten documents is R@10 under another name, and is marked.

A list shorter than a measure reads is whole where it is also shorter than everything that could have cut it: the search found
no more. Else it may have been cut, by `retrieve.depth`, `fuse.depth`, `fuse.keep`, `rerank.keep`, `ablate.keep` or the depth
of a strategy or of a hybrid retriever, and the measure has not looked at what stands behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.measure.arrays import Numbers

MARK = "*"  # of a measure of lists that were cut above its depth, and of a difference between such lists


class Looked(NamedTuple):
    """A measure of some lists that were cut above its depth."""

    reads: int
    """Documents of a list that the measure reads."""
    documents: float
    """Documents of the cut lists, on average."""
    keys: int
    """Number of judged keys whose list was cut."""

    def __str__(self) -> str:
        """Returns it as 'looked at 10 of 100'."""
        mean = f"{self.documents:,.1f}".removesuffix(".0")
        return f"looked at {mean} of {self.reads:,}"


def cut_lists(lengths: Numbers, least: Numbers | int, reads: int) -> npt.NDArray[np.bool_]:
    """Returns which lists were cut above the depth that a measure reads.

    Args:
        lengths: documents of each list, as far as they were read.
        least: what `cut_from` returns, of each list or of all.
        reads: documents that the measure reads.
    """
    cut: npt.NDArray[np.bool_] = (lengths >= least) & (lengths < reads)
    return cut


def looked(lengths: Numbers, least: Numbers | int, reads: int) -> Looked | None:
    """Returns how deep a measure looked, by `cut_lists`; None if no list was cut above its depth."""
    cut = cut_lists(lengths, least, reads)
    return Looked(reads, float(lengths[cut].mean()), int(cut.sum())) if cut.any() else None


def uneven(a: Numbers, least_a: Numbers | int, b: Numbers | int, least_b: Numbers | int, reads: int) -> bool:
    """Returns whether a measure compares lists that end at different depths, one of which was cut above its depth."""
    cut = cut_lists(a, least_a, reads) | cut_lists(np.asarray(b), least_b, reads)
    return bool((cut & (np.minimum(a, reads) != np.minimum(b, reads))).any())
