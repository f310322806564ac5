"""`fill`: looks values up in a store, computes the missing ones, stores them in portions, returns all in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Portion = Sequence[tuple[Key, Value]]


class Store(Protocol[Key, Value]):
    """A durable mapping of keys to values."""

    def get(self, keys: Sequence[Key]) -> Mapping[Key, Value]:
        """Returns the stored values of these keys; missing keys are left out."""
        ...

    def put(self, portion: Portion[Key, Value]) -> None:
        """Stores the values, or keeps them until the whole shard is stored."""
        ...


def fill(
    store: Store[Key, Value],
    keys: Sequence[Key],
    compute: Callable[[list[Key]], Iterable[Portion[Key, Value]]],
) -> list[Value]:
    """Returns the values of the keys, in order; computes only those that are not stored.

    A portion is put before the next one is computed.

    Args:
        store: of the values.
        keys: may repeat; each is computed once.
        compute: called once with the missing keys, if there are any; yields (key, value) pairs in portions, in any order.
            Its exceptions pass through, after the portions before them were stored.
    """
    values = dict(store.get(keys)) if keys else {}
    missing = [key for key in dict.fromkeys(keys) if key not in values]
    for portion in compute(missing) if missing else ():
        store.put(portion)
        values.update(portion)
    return [values[key] for key in keys]
