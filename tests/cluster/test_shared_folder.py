"""A local output that not all nodes of a cluster see is refused before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.shared_folder import check_shared
from cluster.storage.files import FileStorage


def test_what_a_node_does_not_see_is_refused(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path / "runs"))
    looked = []

    def look(path: Path) -> dict[str, bool]:
        looked.append(path.read_bytes())
        return {"10.0.0.1": True, "10.0.0.3": False, "10.0.0.2": False}

    with pytest.raises(ClusterError, match=r"^output: .*/runs is a folder .* and 2 nodes \(10\.0\.0\.2, \.\.\.\) do not see"):
        check_shared(storage, "output", look)
    check_shared(storage, "output", lambda _: {"10.0.0.1": True})
    check_shared(storage, "output", lambda _: {})  # no other node answers
    assert looked == [b"1"]
    assert list(storage.list()) == []  # nothing is left there
