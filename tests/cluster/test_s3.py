"""S3 that misbehaves: nothing is lost, nothing is done twice, and what no waiting mends is one line."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster import outages
from cluster.errors import ClusterError, UnavailableError
from cluster.storage import check_writable, open_storage, s3, s3_client
from cluster.storage.s3 import PART, S3Storage
from cluster.storage.s3_client import take_traffic
from tests.support.cluster.certificates import own_certificate
from tests.support.cluster.clock import Clock
from tests.support.cluster.s3_proxy import Fault, Proxy, proxied
from tests.support.cluster.s3_server import S3Server, connect


@pytest.fixture
def store(proxy: Proxy) -> S3Storage:
    storage = S3Storage(proxy.server.fresh())
    storage.put("before", b"1")  # the store has answered once
    proxy.requests.clear()
    return storage


def refusal(action, *arguments) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError) as refused:
        action(*arguments)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 400
    for secret in ("testtesttest", "StringToSign", "Signature=", "wrong-secret"):
        assert secret not in text
    return text


# ---------------------------------------------------------------- faults that pass


@pytest.mark.parametrize("kind", ["slow_down", "conflict", "reset", "lost", "slow"])
def test_a_commit_is_made_once_whatever_happens_to_its_request(store: S3Storage, proxy: Proxy, kind: str) -> None:
    proxy.faults = [Fault(kind, times=2, seconds=0.2)]
    assert store.put_if_absent("commits/000001.json", b"ours")
    assert {done for done, _, _ in proxy.did} == {kind}
    assert store.get("commits/000001.json") == b"ours"
    assert not store.put_if_absent("commits/000001.json", b"theirs")
    assert not store.put_if_absent("commits/000001.json", b"ours"), "the same content of another put is not ours"


def test_of_many_whose_answers_are_lost_exactly_one_has_won(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("lost", times=6), Fault("conflict", times=4), Fault("reset", times=2)]
    together = threading.Barrier(8)

    def attempt(_: int) -> bool:
        together.wait()
        return store.put_if_absent("key", b"the same of all")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(attempt, range(8))).count(True) == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(s3_client, "SHORT_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(s3_client, "_answered", set())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("cluster.outages.time", made)
    monkeypatch.setattr(s3_client, "_unavailable", set())
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slow_down", "conflict", "reset", "spoilt"])
def test_patience_is_one_time_for_everybody_however_many_ask(s3: S3Server, clock: Clock, kind: str) -> None:
    """botocore's quota of retries, which all threads share, once left the second and every later request seconds only."""
    with proxied(s3) as (proxy, address), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", address)
        patch.setenv("AWS_MAX_ATTEMPTS", "9")
        patch.setenv("AWS_RETRY_MODE", "legacy")
        store = S3Storage(s3.fresh())
        store.put("before", b"1")
        for _ in range(3):
            s3_client._unavailable.clear()
            before, proxy.faults = clock.now, [Fault(kind, times=10**6)]
            with pytest.raises(UnavailableError) as error:
                store.put("key", b"1")
            passed = clock.now - before
            assert s3_client.RETRY_SECONDS <= passed <= s3_client.RETRY_SECONDS + outages.LONGEST_PAUSE
            assert str(error.value).startswith(f"{store.url('key')}: 127.0.0.1:")
            assert str(error.value).endswith(f" for {passed:.0f} s")
        attempts = len(proxy.did) / 3
        assert 15 < attempts < 60, "waits that grow, and no second loop inside"


def test_what_follows_upon_a_store_that_is_away_does_not_wait_as_long_again(
    s3: S3Server, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        store = S3Storage(s3.fresh())
        proxy.faults = [Fault("slow_down", times=10**6), Fault("slow_down", method="GET", times=10**6)]
        with pytest.raises(UnavailableError):
            store.get("key")
        before = clock.now
        with pytest.raises(UnavailableError):
            store.put("run.json", b"1")
        assert clock.now - before < 2 * s3_client.SHORT_RETRY_SECONDS
        proxy.faults = []
        store.put("key", b"1")
        assert not s3_client._unavailable


@pytest.mark.usefixtures("impatient")
def test_a_commit_that_was_made_but_never_answered_is_known_as_made(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("lost", times=1), Fault("slow_down", times=1000)]
    assert store.put_if_absent("key", b"ours")


@pytest.mark.usefixtures("impatient")
def test_a_commit_that_cannot_be_made_is_an_error_not_a_lost_race(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("slow_down", times=1000)]
    with pytest.raises(UnavailableError, match=r"s3://.*key: 127.0.0.1:\d+ answers 503 SlowDown for \d+ s"):
        store.put_if_absent("key", b"ours")
    proxy.faults = []
    assert store.get("key") is None


@pytest.mark.parametrize("kind", ["slow_down", "reset", "lost"])
def test_put_and_delete_are_tried_again(store: S3Storage, proxy: Proxy, kind: str) -> None:
    proxy.faults = [Fault(kind, times=2), Fault(kind, method="DELETE", times=2)]
    store.put("a", b"1")
    assert store.get("a") == b"1"
    store.delete("a")
    assert store.get("a") is None
    assert len(proxy.did) == 4


@pytest.mark.parametrize("kind", ["slow_down", "reset", "cut"])
def test_reading_is_tried_again(store: S3Storage, proxy: Proxy, kind: str) -> None:
    data = os.urandom(6_000_000)
    store.put("big", data)
    proxy.faults = [Fault(kind, method="GET", times=3)]
    assert store.get("big") == data
    proxy.faults = [Fault(kind, method="GET", times=30, every=2)]
    with store.open("big") as file:
        assert file.read() == data
        assert file.read_at(7, 3) == data[3:10]
    assert len(proxy.did) > 3


def test_an_error_whose_body_breaks_off_is_tried_again(store: S3Storage, proxy: Proxy) -> None:
    """As that of a missing object, which the lease of a run asks for at each heartbeat."""
    proxy.faults = [Fault("cut", method="GET", times=2)]
    assert store.get("missing") is None
    assert len(proxy.did) == 2


SLOW = pytest.mark.slow


@pytest.mark.parametrize("kind", ["slow_down", pytest.param("reset", marks=SLOW), pytest.param("cut", marks=SLOW)])
def test_every_page_of_a_list_is_tried_again(store: S3Storage, proxy: Proxy, kind: str) -> None:
    for n in range(25):
        store.put(f"many/{n:04d}", b"1")
    proxy.requests.clear()
    proxy.faults = [Fault(kind, method="GET", path="list-type=2", times=2, every=2)]
    listing, events = "provide-client-params.s3.ListObjectsV2", s3_client.client().meta.events
    events.register(listing, small_pages)
    try:
        assert [entry.key for entry in store.list("many")] == [f"many/{n:04d}" for n in range(25)]
    finally:
        events.unregister(listing, small_pages)
    assert len([1 for _, path in proxy.requests if "continuation-token" in path]) >= 2
    assert proxy.did


def test_an_empty_page_is_not_the_end_of_a_list(store: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, page = [{"IsTruncated": True, "NextContinuationToken": ""}], s3._page
    monkeypatch.setattr(s3, "_page", lambda asked, client: empty.pop() if empty else page(asked, client))
    entry = store.stat("before")
    assert (entry and entry.size, empty) == (1, [])


def test_a_login_page_is_no_answer_of_a_store(store: S3Storage, proxy: Proxy) -> None:
    for put in (store.put, store.put_if_absent):
        proxy.faults = [Fault("login", times=2)]
        put(put.__name__, b"1")
    reads = (
        lambda: store.get("put"),
        lambda: store.get("put_if_absent"),
        lambda: store.stat("put"),
        lambda: list(store.list()),
    )
    for read in reads:
        proxy.faults = [Fault("login", method="GET", times=2)]
        found = read()
        assert found == b"1" or found == read() != []
    assert len(proxy.did) == 12


def test_an_object_that_a_store_says_is_missing_is_removed(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("missing", method="DELETE")]
    store.delete("nobody", "before")
    assert [kind for kind, *_ in proxy.did] == ["missing"]


def small_pages(params: dict[str, Any], **_: object) -> dict[str, Any]:
    """Has the store give ten keys a page, in place of a thousand."""
    return params | {"MaxKeys": 10}


def test_one_part_that_fails_is_sent_again_and_not_the_file(
    store: S3Storage, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.faults = [Fault("spoilt", path="partNumber=3", times=3)]
    (tmp_path / "large").write_bytes(bytes(3 * PART))
    store.upload(tmp_path / "large", "t/large")
    sent = [path.partition("partNumber=")[2].partition("&")[0] for method, path in proxy.requests if method == "PUT"]
    assert sorted(sent) == ["1", "2", "3", "3", "3", "3"]
    monkeypatch.setattr(s3_client, "RETRY_SECONDS", 0.0)
    proxy.faults = [Fault("slow_down", path="partNumber=3", times=10**6)]
    with pytest.raises(UnavailableError):
        store.upload(tmp_path / "large", "t/larger")
    assert [method for method, _ in proxy.requests if method == "DELETE"], "the parts of what failed are removed"


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_file_that_is_replaced_while_it_is_downloaded_is_not_mixed(
    store: S3Storage, s3: S3Server, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("big", b"a" * (8 << 20))
    monkeypatch.setattr("cluster.storage.s3.PART", 1 << 20)
    entry = store.stat("big")
    assert entry is not None

    def replace() -> None:
        key = store.root.split("/", 3)[3] + "/big"
        connect(s3).put_object(Bucket=s3.bucket, Key=key, Body=b"b" * (8 << 20))

    if moment == "before":
        replace()
    with pytest.raises(FileNotFoundError, match="was replaced while it was copied"):
        store.download(entry, tmp_path / "big", replace)
    assert not (tmp_path / "big").exists()


def test_an_open_file_reads_ranges_and_never_the_whole(store: S3Storage) -> None:
    store.put("big", bytes(40_000_000))
    take_traffic()
    with store.open("big") as file:
        file.read_at(100, 20_000_000)
        file.read_at(100, 20_001_000)
        file.read_at(8, 39_999_992)
    assert take_traffic()["received_bytes"] < 5_000_000


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(store: S3Storage) -> None:
    store.put("big", b"a" * 10_000_000)
    with store.open("big") as file:
        file.read_at(10, 0)
        store.put("big", b"b" * 10_000_000)
        with pytest.raises(OSError, match="was replaced while it was read"):
            file.read_at(10, 6_000_000)


# ---------------------------------------------------------------- refused at the start


def test_a_store_that_does_not_heed_the_condition_is_refused(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("unconditional", times=100)]
    text = refusal(check_writable, store, "output")
    assert text == f"output: {store.root} overwrites files that were to be created only; name another store"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("region", "the bucket is not in region 'us-east-1' (AuthorizationHeaderMalformed); set AWS_REGION to 'eu-west-7'"),
        ("denied", "denies PutObject to these credentials (AccessDenied); grant it, or use others"),
        ("expired", "the credentials have expired (ExpiredToken); renew them"),
        ("unknown", "cannot do what PutObject asks for (NotImplemented); use another store"),
    ],
)
def test_what_no_waiting_mends_is_said_at_once(store: S3Storage, proxy: Proxy, kind: str, words: str) -> None:
    proxy.faults = [Fault(kind, times=100)]
    assert words in refusal(check_writable, store, "output")
    assert len(proxy.did) <= 2, "asked again in vain"  # botocore itself tries the region that it is told


def test_a_store_that_is_away_is_not_a_wrong_path(store: S3Storage, proxy: Proxy, impatient: None) -> None:
    proxy.faults = [Fault("slow_down", times=3, every=2), Fault("slow_down", times=10**6)]
    with pytest.raises(UnavailableError, match="answers 503 SlowDown for"):
        check_writable(store, "output")
    proxy.faults = []
    assert [entry.key for entry in store.list()] == ["before"], "the probe stayed"


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    for action in (
        lambda s: s.get("x"),
        lambda s: list(s.list()),
        lambda s: check_writable(s, "output"),
        lambda s: s.open("x"),
    ):
        text = refusal(action, open_storage("s3://no-such-bucket-here/runs"))
        assert "there is no bucket s3://no-such-bucket-here at 127.0.0.1" in text
        assert "create it" in text


@pytest.mark.usefixtures("impatient")
def test_no_credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    assert "no credentials for S3; set AWS_ACCESS_KEY_ID" in refusal(open_storage(s3.fresh()).get, "x")


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("https://user:hid@den@{host}", "127.0.0.1"), ("htp//user:hidden@{host}", "127.0.0.1"),
        pytest.param("http://user:hidden@127.0.0.1:9", "no answer from 127.0.0.1:9; correct AWS_ENDPOINT_URL_S3", marks=SLOW),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("impatient")
def test_no_word_of_an_address_that_could_be_secret(
    s3: S3Server, address: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address.format(host=s3.endpoint.partition("//")[2]))
    text = refusal(open_storage(s3.fresh()).get, "x")
    assert line in text
    assert "user:" not in text
    assert "hid" not in text


def test_a_key_is_what_it_says_with_every_character(s3: S3Server) -> None:
    storage = open_storage(s3.fresh("a b+c=d%20#?&é"))
    for key in ("date=2026-01-31/x y.parquet", "ü/#1?.json", "100%25"):
        storage.put(key, key.encode())
    assert sorted(entry.key for entry in storage.list()) == sorted(["date=2026-01-31/x y.parquet", "ü/#1?.json", "100%25"])
    assert storage.get("ü/#1?.json") == "ü/#1?.json".encode()


def test_folders_made_by_a_console_are_no_objects(s3: S3Server) -> None:
    storage = open_storage(s3.fresh("made"))
    connect(s3).put_object(Bucket=s3.bucket, Key=storage.root.split("/", 3)[3] + "/empty/", Body=b"")
    assert list(storage.list()) == []
    assert storage.folders() == ["empty"]


@pytest.fixture
def tls(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A load balancer that ends TLS before the server."""
    certificate, context = own_certificate(tmp_path)
    with Proxy(s3, context) as balancer:
        monkeypatch.setattr("cluster.outages.pause", lambda *_: 0.0)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", balancer.url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield balancer


@pytest.mark.slow
def test_a_handshake_that_breaks_off_is_tried_again(s3: S3Server, tls: Proxy) -> None:
    store = S3Storage(s3.fresh())
    store.put("before", b"1")
    s3_client._client.cache_clear()  # new connections
    tls.broken_handshakes = 3
    store.put("key", b"2")
    assert store.get("key") == b"2"
    assert tls.broken_handshakes == 0


def test_a_handshake_that_never_was_whole_says_so_soon(s3: S3Server, tls: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "SHORT_RETRY_SECONDS", 0.3)
    tls.broken_handshakes = 10**6
    with pytest.raises(ClusterError, match=r"no secure connection to localhost.*(UNEXPECTED_|\()EOF") as refused:
        S3Storage(s3.fresh()).get("key")
    assert "AWS_CA_BUNDLE" not in str(refused.value)
    assert "; correct AWS_ENDPOINT_URL_S3 (https or http)" in str(refused.value)


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    s3: S3Server, tls: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Storage(s3.fresh())
    store.put("before", b"1")
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with pytest.raises(ClusterError, match=r"CERTIFICATE_VERIFY_FAILED.*; set AWS_CA_BUNDLE"):
        store.get("before")
