"""Copies of objects on this machine: one per version, whoever and however many ask, and after a kill."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.storage import copies
from cluster.storage.copies import copied, work_folder
from cluster.storage.s3 import S3Storage
from tests.support.cluster.s3_proxy import Proxy
from tests.support.cluster.s3_server import S3Server
from tests.support.processes import check_killed, line, python

COPY = """
import sys
from cluster.storage.copies import copied
from cluster.storage.s3 import S3Storage
storage = S3Storage(sys.argv[1])
print(copied(storage, list(storage.list("data")), sys.argv[2]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    storage = S3Storage(s3.fresh("copies"))
    for name in ("a", "b/c"):
        storage.put(f"data/{name}", name.encode() * 100_000)
    return storage


def child(storage: S3Storage, version: str) -> subprocess.Popen[str]:
    return python(COPY, storage.root, version)


def folders(storage: S3Storage) -> list[str]:
    return sorted(path.suffix or "whole" for path in copies.copies_folder(storage).iterdir() if path.suffix != ".lock")


def test_what_lies_there_is_copied_under_its_keys(store: S3Storage) -> None:
    here = copied(store, list(store.list("data")), "1", {"index.json": b"{}"})
    assert here is not None
    assert (here / "data/b/c").read_bytes() == b"b/c" * 100_000
    assert (here / "index.json").read_bytes() == b"{}"
    assert copied(store, [], "1") == here, "a version that is there is not copied again"


@pytest.mark.slow
def test_several_processes_and_threads_share_one_copy(store: S3Storage, proxy: Proxy) -> None:
    others = [child(store, "1") for _ in range(3)]
    entries = list(store.list("data"))
    with ThreadPoolExecutor(4) as pool:
        mine = set(pool.map(lambda _: str(copied(store, entries, "1")), range(4)))
    said = {line(other) for other in others}
    assert said == mine, "they hold the copy at the same time"
    for other in others:
        other.communicate("", timeout=300)
    assert len([path for method, path in proxy.requests if method == "GET" and "/data/" in path]) == 2


def test_a_copy_that_was_killed_is_completed_by_the_next(store: S3Storage) -> None:
    code = "import os, signal\nfrom cluster.storage.s3 import S3Storage as S\ntake = S.download\n"
    code += "def one(*all):\n    take(*all)\n    os.kill(os.getpid(), signal.SIGKILL)\nS.download = one\n"
    check_killed(code + COPY, store.root, "1")
    assert folders(store) == [".part"]
    assert copied(store, [], "1", there_only=True) is None
    here = copied(store, list(store.list("data")), "1")
    assert here is not None
    assert (here / "data/a").stat().st_size == 100_000
    assert folders(store) == ["whole"]


@pytest.mark.slow
def test_an_old_copy_goes_when_nobody_holds_it(store: S3Storage) -> None:
    holder = child(store, "1")
    old = Path(line(holder))
    copied(store, list(store.list("data")), "2")
    assert old.is_dir(), "somebody still uses it"
    holder.communicate("", timeout=300)
    new = copied(store, list(store.list("data")), "3")
    assert not old.exists()
    assert new is not None
    assert new.is_dir()
    assert len(folders(store)) == 2, "this process holds version 2 itself"


def test_an_object_that_is_gone_leaves_no_copy(store: S3Storage) -> None:
    entries = list(store.list("data"))
    store.delete("data/b/c")
    with pytest.raises(FileNotFoundError):
        copied(store, entries, "1")
    assert folders(store) == []


def test_too_little_space_is_said_before_anything_is_fetched(store: S3Storage) -> None:
    entries = [entry._replace(size=1 << 60) for entry in store.list("data")]
    with pytest.raises(ClusterError, match=r"takes 2,305,843,009,213,693,952 bytes, .* free; free some, or set DMQR_CACHE"):
        copied(store, entries, "1")


WORK = """
import sys
from cluster.storage.copies import work_folder
with work_folder() as folder:
    (folder / "corpus").write_bytes(b"x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_work_that_was_killed_is_swept_and_work_under_way_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(copies.FOLDER, str(tmp_path))
    both = [python(WORK) for _ in range(2)]
    dead, alive = (Path(line(one)) for one in both)
    os.kill(both[0].pid, signal.SIGKILL)
    both[0].wait()
    assert (dead / "corpus").exists()
    with work_folder() as mine:
        assert {path.name for path in (tmp_path / "work").iterdir()} == {mine.name, alive.name}
    both[1].communicate("")
    assert both[1].returncode == 0
    assert list((tmp_path / "work").iterdir()) == []


def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(copies.FOLDER, raising=False)
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    copies.cache_folder().parent.mkdir(mode=0o700)
    with pytest.raises(ClusterError, match="belongs to another user; set DMQR_CACHE"):
        copied(S3Storage("s3://bucket/index"), [], "1")
