"""What the benchmarks of the store share: rows as a night makes them, and a storage that counts what S3 would be asked."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from cluster.storage import Entry  # noqa: E402
from cluster.storage.files import FileStorage  # noqa: E402
from jobs.chain.store.facts import _COMPLETION as COMPLETION  # noqa: E402
from jobs.chain.store.files import Space, StoreFiles, open_store  # noqa: E402

SPACE = Space("completions", "a" * 32)
ABOUT = {SPACE: {"engine": {"kind": "openai", "model": "model"}}}
PAGE = 1_000  # keys of a page of S3's listing
TEMPLATE = "Rewrite the query for a search engine in four ways, as a JSON object with the keys that the schema has. " * 8
WORDS = np.array([f"{first}{second}" for first in ("bo", "ka", "mi", "ru", "so", "te", "va", "zi") for second in range(500)])


def ids(random: np.random.Generator, count: int) -> list[str]:
    """New query_ids, which are spread evenly."""
    digits = random.bytes(16 * count).hex()
    return [digits[at : at + 32] for at in range(0, len(digits), 32)]


def completions(random: np.random.Generator, query_ids: Sequence[str]) -> pa.Table:
    """One completion of each query: 900 characters of prompt, mostly the template, and 250 of four rewrites."""
    count = len(query_ids)
    words = WORDS[random.integers(0, len(WORDS), (count, 44))]
    queries = [" ".join(row[:4]) for row in words]
    names = ("general", "keyword", "pseudo_answer", "core_content")
    texts = [
        "{" + ", ".join(f'"{name}": "{" ".join(row[4 + 10 * at : 14 + 10 * at])}"' for at, name in enumerate(names)) + "}"
        for row in words
    ]
    columns: dict[str, Any] = {
        "query_id": query_ids, "request": ["dmqr"] * count, "prompt_hash": ["0123456789abcdef"] * count,
        "prompt": [f"{TEMPLATE}{query}" for query in queries], "text": texts, "finish_reason": ["stop"] * count,
        "model": ["model"] * count, "sample": [0] * count, "variables": ["/" + "b" * 32] * count,
        "prompt_tokens": random.integers(210, 240, count), "completion_tokens": random.integers(60, 120, count),
        "seconds": random.random(count), "attempts": [1] * count,
    }  # fmt: skip
    given = {name: pa.array(columns[name], COMPLETION.field(name).type) for name in columns}
    return pa.table([given.get(field.name, pa.nulls(count, field.type)) for field in COMPLETION], schema=COMPLETION)


def put_night(files: StoreFiles, random: np.random.Generator, query_ids: Sequence[str], shards: int) -> None:
    """Puts a night: one file per shard, by ranges of query_ids."""
    ordered = sorted(query_ids)
    for part in np.array_split(np.arange(len(ordered)), shards):
        if len(part):
            files.put(SPACE, completions(random, [ordered[place] for place in part]))


class CountingStorage(FileStorage):
    """A folder, with what S3 would have been asked: pages of listings, ranges of objects."""

    requests: ClassVar[Counter[str]] = Counter()

    def put(self, key: str, data: bytes) -> None:
        self.requests["put"] += 1
        super().put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.requests["put"] += 1
        return super().put_if_absent(key, data)

    def get(self, key: str) -> bytes | None:
        self.requests["get"] += 1
        return super().get(key)

    def open(self, key: str) -> pa.NativeFile:
        file = io.BufferedReader(_Counted(self._folder / key, self.requests), 1 << 16)
        return pa.PythonFile(file, mode="r")

    def list(self, prefix: str = "") -> Iterator[Entry]:
        found = list(super().list(prefix))
        self.requests["list"] += max(1, -(-len(found) // PAGE))
        yield from found

    def delete(self, *keys: str) -> None:
        self.requests["delete"] += len(keys)
        super().delete(*keys)


class _Counted(io.FileIO):
    """A file of which each read is a request, as `cluster/storage/s3_file.py` makes one."""

    def __init__(self, path: Path, requests: Counter[str]) -> None:
        super().__init__(path)
        self._requests = requests

    def readinto(self, buffer: Any) -> int | None:
        self._requests["get"] += 1
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._requests["get"] += 1
        return super().readall()


def counted(work: Callable[[], Any]) -> Counter[str]:
    """Returns what S3 would have been asked by a piece of work."""
    before = Counter(CountingStorage.requests)
    work()
    return CountingStorage.requests - before


def opened(root: Path, began: float) -> StoreFiles:
    """The store as a job opens it."""
    return open_store(str(root), ABOUT, began)


def patch_storage() -> None:
    """Has the store count."""
    from jobs.chain.store import files

    files.open_storage = CountingStorage  # type: ignore[attr-defined]
