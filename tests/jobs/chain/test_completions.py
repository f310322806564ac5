"""The run's own store of completions, without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cluster.storage.files import FileStorage
from jobs.chain.completions import CompletionRecord, Completions, uncommitted
from jobs.chain.fill import Portion
from jobs.chain.journal import JournalKeeper, Key
from rewriters.engines import Completion


def made(text: str, error: str | None = None) -> CompletionRecord:
    completion = Completion(text, "stop", "m", 10, 4, 3, "reported", 2.0, 1, error)
    return CompletionRecord(completion, f"Ask.\n{text}")


def store(folder: Path, shard: int = 3, start: int = 1, gpus: float = 0.0) -> Completions:
    return Completions(FileStorage(str(folder)), shard, start, gpus)


def put(stored: Completions, portion: Portion[Key, CompletionRecord]) -> None:
    stored.put(portion)
    stored.merge()


A, B, C = (Key(query_id, "dmqr", "h") for query_id in "abc")


def test_what_was_put_is_found_with_who_paid_for_it(tmp_path: Path) -> None:
    put(store(tmp_path, start=2, gpus=0.5), [(A, made("one")), (B, made("two"))])
    found = store(tmp_path, start=3).get([B, A, C])
    assert found == {key: kept._replace(start=2, device_seconds=1.0) for key, kept in ((A, made("one")), (B, made("two")))}


def test_a_journal_that_a_kill_left_has_the_tier_that_is_to_be_billed(tmp_path: Path) -> None:
    billed = made("one")._replace(completion=replace(made("one").completion, tier="flex"))
    fallen = made("two")._replace(completion=replace(made("two").completion, tier="standard"))
    keeper = JournalKeeper(FileStorage(str(tmp_path)), seconds=1000)
    Completions(FileStorage(str(tmp_path)), 3, 1, 0.0, keeper).put([(A, billed), (B, fallen)])
    keeper.close()
    found = store(tmp_path, start=2).get([A, B])
    assert [found[key].completion.tier for key in (A, B)] == ["flex", "standard"]
    assert {row["query_id"]: row["tier"] for row in uncommitted(FileStorage(str(tmp_path)), ())} == {
        "a": "flex",
        "b": "standard",
    }


def test_only_what_is_asked_for_is_given_and_only_of_the_shard(tmp_path: Path) -> None:
    put(store(tmp_path), [(A, made("one")), (B, made("two"))])
    assert set(store(tmp_path).get([B])) == {B}
    assert store(tmp_path).get([A._replace(prompt_hash="other"), B._replace(request="keyword")]) == {}
    assert store(tmp_path, shard=30).get([A]) == {}


def test_of_what_failed_only_the_sends_are_kept_which_are_lost_if_the_shard_is_done_again(tmp_path: Path) -> None:
    put(store(tmp_path), [(A, made("", "refused")), (B, made("two"))])
    put(store(tmp_path), [(C, made("", "refused"))])
    put(store(tmp_path), [])
    again = store(tmp_path)
    assert set(again.get([A, B, C])) == {B}
    assert [row["query_id"] for row in again.rows()] == ["b"]
    assert again.lost == {A: 1, C: 1}
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_samples_and_values_of_variables_are_completions_of_their_own(tmp_path: Path) -> None:
    keys = [A, A._replace(sample=1), A._replace(variables="0f"), A._replace(sample=1, variables="0f")]
    put(store(tmp_path), [(key, made(str(number))) for number, key in enumerate(keys)])
    found = store(tmp_path).get([*keys, A._replace(sample=2)])
    assert {key: kept.completion.text for key, kept in found.items()} == {key: str(number) for number, key in enumerate(keys)}
