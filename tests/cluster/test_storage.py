"""Storage: what a key holds is whole, and put-if-absent has one winner, whatever is killed when."""

import os
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.storage import Storage, check_writable, open_storage, written
from cluster.storage.prefetch import begin, prefetch
from tests.support.processes import check_killed, line, python
from tests.support.waits import PATIENCE, until

HEAD = """
import os, signal, sys
from pathlib import Path
from cluster.storage import open_storage
storage = open_storage(sys.argv[1])
"""
RACE = """
sys.stdin.readline()
for n in range(40):
    if storage.put_if_absent(f"k/{n}", sys.argv[2].encode() * 5000):
        print(n)
"""
WRITE = """
for n in range(1_000_000):
    storage.put("k", str(n % 10).encode() * 500_000)
    print(n, flush=True)
"""


def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [entry.key for entry in storage.list(prefix)]


# ---------------------------------------------------------------- put_if_absent


def test_of_many_threads_exactly_one_wins_and_its_content_is_whole(storage: Storage) -> None:
    together = threading.Barrier(16)

    def attempt(number: int) -> bool:
        together.wait()
        return storage.put_if_absent("key", bytes([number]) * 300_000)

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(attempt, range(16)))
    assert won.count(True) == 1
    assert storage.get("key") == bytes([won.index(True)]) * 300_000
    assert keys(storage) == ["key"]  # the losers left no temporary


@pytest.mark.slow
def test_of_several_processes_exactly_one_wins_each_key(storage: Storage) -> None:
    racers = {name: python(HEAD + RACE, storage.root, name) for name in "abc"}
    for racer in racers.values():
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {name: racer.communicate(timeout=300)[0].split() for name, racer in racers.items()}
    assert sorted(int(n) for mine in won.values() for n in mine) == list(range(40))
    for name, mine in won.items():
        for n in mine:
            assert storage.get(f"k/{n}") == name.encode() * 5000


def test_the_names_of_new_folders_are_durable_too(folder_storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    folder_storage.put("runs/one/key", b"1")
    root = Path(folder_storage.root)
    assert {str(path) for path in (root.parent, root, root / "runs", root / "runs" / "one")} <= set(synced)
    synced.clear()
    folder_storage.put("runs/one/other", b"1")
    assert str(root / "runs") not in synced


@pytest.mark.parametrize("moment", ["os.fsync", "os.link"])
def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_data(folder_storage: Storage, moment: str) -> None:
    storage = folder_storage
    Path(storage.root, "commits").mkdir(parents=True)  # else the first sync is that of its name
    code = f"{moment} = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\nstorage.put_if_absent('commits/000001.json', b'x' * 9)"
    check_killed(HEAD + code, storage.root)
    assert storage.get("commits/000001.json") is None
    left = keys(storage, "commits")
    assert len(left) == 1, "the test has not killed in the middle"
    assert not left[0].endswith((".json", ".parquet"))
    assert storage.put_if_absent("commits/000001.json", b"next")
    assert storage.get("commits/000001.json") == b"next"


def test_a_kill_after_the_link_leaves_the_whole_file(folder_storage: Storage) -> None:
    storage = folder_storage
    code = "Path.unlink = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\nstorage.put_if_absent('k.json', b'x' * 100_000)"
    check_killed(HEAD + code, storage.root)
    assert storage.get("k.json") == b"x" * 100_000
    assert not storage.put_if_absent("k.json", b"other")


# ---------------------------------------------------------------- put, upload


def test_a_reader_sees_the_old_or_the_new_never_a_mixture(storage: Storage) -> None:
    storage.put("k", b"a" * 200_000)
    seen: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(storage.get("k") or b"nothing")

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(20):
        storage.put("k", bytes([97 + n % 2]) * 200_000)
    done.set()
    reader.join()
    assert {(len(data), len(set(data))) for data in seen} == {(200_000, 1)}


@pytest.mark.slow
def test_a_put_killed_at_any_moment_leaves_a_whole_object(storage: Storage) -> None:
    storage.put("k", b"0" * 500_000)
    chance = random.Random(7)
    for _ in range(3):
        writer = python(HEAD + WRITE, storage.root)
        line(writer)
        time.sleep(chance.uniform(0.01, 0.1))
        writer.kill()
        writer.communicate()
        data = storage.get("k") or b""
        assert (len(data), len(set(data))) == (500_000, 1)


def test_upload_takes_a_whole_file_and_replaces(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    storage.put("t/file", b"old")
    storage.upload(source, "t/file")
    assert storage.get("t/file") == source.read_bytes()
    assert keys(storage) == ["t/file"]


# ---------------------------------------------------------------- reading


def test_what_is_not_there(storage: Storage) -> None:
    assert storage.get("no") is None
    assert keys(storage) == []
    assert keys(storage, "commits") == []
    storage.delete("no")
    with pytest.raises(FileNotFoundError):
        storage.open("no")


def test_list_knows_sizes_stays_in_its_folder_and_is_sorted(storage: Storage) -> None:
    numbered = [f"lease/{n:06d}.json" for n in (10, 2, 1, 9, 100)]
    written = ["runs/b", "runs/a", "runs2/x", "other/y", "c.json", "c-b/z", *numbered]
    for key in written:
        storage.put(key, b"old")
        storage.put(key, key.encode())
    assert storage.folders() == ["c-b", "lease", "other", "runs", "runs2"]
    assert [entry[:2] for entry in storage.list("runs")] == [("runs/a", 6), ("runs/b", 6)]
    assert keys(storage, "lease") == sorted(numbered)
    assert keys(storage) == sorted(written)
    assert storage.get("runs/b") == b"runs/b"


def test_stat_knows_objects_and_no_folders(storage: Storage) -> None:
    storage.put("a/b", b"123")
    storage.put("a/bc", b"1")
    found = storage.stat("a/b")
    assert found is not None
    assert found[:2] == ("a/b", 3)
    assert storage.stat("a") is None
    assert storage.stat("a/") is None
    assert storage.stat("no") is None


def test_open_reads_any_part(storage: Storage) -> None:
    data = os.urandom(9_500_000)
    storage.put("big", data)
    assert storage.url("big") == f"{storage.root}/big"
    with storage.open("big") as file:
        assert file.size() == len(data)
        for start, size in ((0, 10), (9_499_990, 10), (4_194_300, 10), (1, 9_000_000), (8_388_600, 5_000_000), (9_500_000, 5)):
            assert file.read_at(size, start) == data[start : start + size]
        file.seek(0)
        assert b"".join(iter(lambda: file.read(1_000_000), b"")) == data
    storage.put("empty", b"")
    with storage.open("empty") as file:
        assert (file.size(), file.read()) == (0, b"")
    storage.delete("empty", "big")
    assert keys(storage) == []


# ---------------------------------------------------------------- which storage


@pytest.mark.parametrize("url", ["gs://bucket", "hdfs://name/x"])
def test_storage_of_another_kind_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ClusterError) as refused:
        open_storage(url)
    text = str(refused.value)
    assert url in text
    assert f"{url.partition(':')[0]}:// is not supported; use s3://BUCKET/FOLDER" in text
    assert "\n" not in text


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    open_storage(f"file://{tmp_path}").put("k", b"1")
    assert (tmp_path / "k").read_bytes() == b"1"


def test_a_relative_path_stays_where_it_was_when_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("runs/")
    monkeypatch.chdir("/")
    storage.put("k", b"1")
    assert (tmp_path / "runs" / "k").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match=f"output: cannot write to {tmp_path}/file/runs: .*name another folder"):
        check_writable(open_storage(str(tmp_path / "file" / "runs")), "output")


@pytest.mark.skipif(os.getuid() == 0, reason="root writes where it may not")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ClusterError, match="Permission denied"):
        check_writable(open_storage(str(tmp_path)), "output")


def test_a_file_system_whose_links_overwrite_is_refused(folder_storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = folder_storage
    monkeypatch.setattr(os, "link", shutil.copyfile)
    with pytest.raises(ClusterError, match="overwrites files that were to be created only"):
        check_writable(storage, "output")


# ---------------------------------------------------------------- files that a person asks for


def test_a_file_is_there_once_it_is_whole_and_what_fails_leaves_it_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError), written(str(path)) as file:
        file.write_text("half \ud800", encoding="utf-8")
    with written(str(path)) as file:
        file.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with written(str(pipe)) as file:
        file.write_text("a page")
    reader.join(300)
    assert read == ["a page"]
    assert pipe.is_fifo()


def test_a_folder_that_is_missing_is_an_error_with_the_path(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "page.html")
    with pytest.raises(FileNotFoundError) as refused, written(path):
        pass
    assert refused.value.filename == path


# ---------------------------------------------------------------- calls ahead of their use


def test_values_come_in_order_and_no_more_are_begun_than_asked() -> None:
    begun: list[int] = []

    def double(n: int) -> int:
        begun.append(n)
        time.sleep(0.01 * (n % 3))
        return 2 * n

    values = prefetch(double, range(10), 3)
    assert next(values) == 0
    until(lambda: len(begun) == 3)
    time.sleep(0.1)
    assert len(begun) == 3
    assert list(values) == [2 * n for n in range(1, 10)]


def test_what_a_call_raises_is_raised_where_its_value_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        begin(lambda: 1 // 0).result()


def test_a_process_ends_while_calls_are_under_way() -> None:
    code = "import time\nfrom cluster.storage.prefetch import begin\nbegin(time.sleep, 3600)\n"
    assert python(code).wait(PATIENCE) == 0
