"""Tables that the driver makes one by one, on a pool of actors of a real Ray."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from cluster.run.actors import map_on_actors
from cluster.run.pool_sizes import Pool, PoolRequest
from cluster.run.session import Session


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    session = Session("local", {"load": PoolRequest(1)})
    yield
    session.close()


class Doubled:
    def __init__(self, refused: int) -> None:
        self._refused = refused

    def __call__(self, table: pa.Table) -> int:
        n = int(table["n"][0].as_py())
        if n == self._refused:
            raise ValueError(f"no {n}")
        return 2 * n


def test_each_table_once_no_more_ahead_than_actors_take_and_errors_as_they_are(ray_session: None) -> None:
    made: list[int] = []

    def tables(most: int) -> Iterator[pa.Table]:
        for n in range(most):
            made.append(n)
            yield pa.table({"n": [n]})

    found, ahead = [], []
    for result in map_on_actors(Doubled, {"refused": 99}, Pool(1, 1, 0), tables(9), 2):
        found.append(result)
        ahead.append(len(made) - len(found))
    assert sorted(found) == [2 * n for n in range(9)]
    assert max(ahead) <= 2, "a table is taken only when an actor can be called with it"
    with pytest.raises(ValueError, match=r"^no 3$"):
        list(map_on_actors(Doubled, {"refused": 3}, Pool(1, 1, 0), tables(5), 2))
