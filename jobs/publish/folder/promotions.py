"""Which version of a folder is promoted: `promotions/N.json`, create-only, and `current.json`, a copy of the last for readers.

Two that promote at once put the same number, and one of them is told. A kill between the two leaves `current.json` as it was,
though the promotion is made; the next promotion, rollback or look at it puts the copy again.
"""

from __future__ import annotations

import json

from cluster.errors import ConfigError
from cluster.storage import Storage
from jobs.publish.promotion import Promotion, overtaken

CURRENT, PROMOTIONS = "current.json", "promotions"


def promoted_now(storage: Storage) -> Promotion | None:
    """Returns the last promotion, and has `current.json` say the same; None: there was none."""
    last = _last(storage)
    if last is not None and storage.get(CURRENT) != _data(last):
        _put(storage, last)
    return last


def move(storage: Storage, to: Promotion) -> None:
    """Makes a promotion whose number is the next.

    Raises:
        HeldError: Another has that number.
    """
    if not storage.put_if_absent(f"{PROMOTIONS}/{to.number:06d}.json", _data(to)):
        raise overtaken(storage.root, promoted_now(storage))
    _put(storage, to)


def _put(storage: Storage, promotion: Promotion) -> None:
    """Puts the copy; of two that do, the later promotion stays, since each looks again."""
    while True:
        storage.put(CURRENT, _data(promotion))
        last = _last(storage)
        if last is None or last.number <= promotion.number:
            return
        promotion = last


def _last(storage: Storage) -> Promotion | None:
    keys = [entry.key for entry in storage.list(PROMOTIONS) if entry.name.endswith(".json") and not entry.name.startswith(".")]
    if not keys:
        return None
    try:
        return Promotion(**json.loads(storage.get(keys[-1]) or b""))
    except (ValueError, TypeError) as error:
        what = f"{storage.url(keys[-1])}: is damaged"
        raise ConfigError("publish-version", f"{what}; put it back as it was") from error


def _data(promotion: Promotion) -> bytes:
    return json.dumps(promotion.values(), ensure_ascii=False, indent=1).encode()
