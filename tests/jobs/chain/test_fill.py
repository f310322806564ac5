"""`fill`: look up, compute what is missing, keep it in portions, give all back in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.fill import Portion, fill

KEYS = st.lists(st.integers(0, 9), max_size=12)


class Kept:
    """A store in memory."""

    def __init__(self, values: Mapping[int, str] | None = None) -> None:
        self.values = dict(values or {})
        self.portions: list[Portion[int, str]] = []

    def get(self, keys: Sequence[int]) -> dict[int, str]:
        return {key: self.values[key] for key in keys if key in self.values}

    def put(self, portion: Portion[int, str]) -> None:
        self.portions.append(list(portion))
        self.values.update(portion)


class Engine:
    """Computes in portions of a size, the last key first, up to as many keys as it lives for."""

    def __init__(self, store: Kept, size: int, life: int = 99) -> None:
        self.store, self.size, self.left = store, size, life
        self.asked: list[int] = []

    def __call__(self, missing: list[int]) -> Iterator[Portion[int, str]]:
        assert missing
        self.asked += missing
        for begin in range(0, len(missing), self.size):
            if self.left <= 0:
                raise RuntimeError("the engine died")
            portion = [(key, f"computed {key}") for key in missing[::-1][begin : begin + self.size]]
            self.left -= len(portion)
            yield portion
            assert dict(portion).items() <= self.store.values.items(), "asked for more before the portion was kept"


@given(KEYS, st.sets(st.integers(0, 9)), st.integers(1, 4))
def test_each_missing_key_is_computed_once_and_kept_and_all_come_back_in_order(
    keys: list[int], known: set[int], size: int
) -> None:
    store = Kept({key: f"stored {key}" for key in known})
    engine = Engine(store, size)
    values = fill(store, keys, engine)
    assert values == [f"{'stored' if key in known else 'computed'} {key}" for key in keys]
    assert engine.asked == list(dict.fromkeys(key for key in keys if key not in known))
    assert [key for portion in store.portions for key, _ in portion] == engine.asked[::-1]
    assert all(len(portion) <= size for portion in store.portions)
    assert fill(store, keys, engine) == values  # a second time nothing is computed
    assert len(engine.asked) == len(set(engine.asked))


@given(KEYS, st.integers(1, 3), st.integers(0, 12))
def test_what_was_made_before_the_engine_died_is_kept_and_not_made_again(keys: list[int], size: int, life: int) -> None:
    store = Kept()
    first = Engine(store, size, life)
    distinct, lived = set(keys), -(-life // size) * size  # whole portions
    if lived >= len(distinct):
        fill(store, keys, first)
    else:
        with pytest.raises(RuntimeError, match="the engine died"):
            fill(store, keys, first)
        assert len(store.values) == lived
    made = set(store.values)
    second = Engine(store, size)
    assert fill(store, keys, second) == [f"computed {key}" for key in keys]
    assert set(second.asked) == distinct - made
