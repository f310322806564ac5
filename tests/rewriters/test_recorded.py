"""The recorded engine: the contract of engines, what its file may hold, and what it says of one that is no recording."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.errors import RewriterError
from dmqr.testing import EngineContract
from rewriters.engines import Completion
from rewriters.engines.recorded import RecordedEngine
from rewriters.engines.settings import RecordedSettings
from tests.support.rewriters.requests import ask, one

Recorded = Callable[..., RecordedEngine]
TEA = {"query": "tea", "completions": {"dmqr": "x"}}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    """Opens engines of lines, and closes them after the test."""
    engines: list[RecordedEngine] = []

    def open_one(*records: object, file: str = "completions.jsonl") -> RecordedEngine:
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        (tmp_path / file).write_text("".join(f"{line}\n" for line in lines))
        engines.append(RecordedEngine(RecordedSettings(kind="recorded", path=str(tmp_path / file))))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


def answer(engine: RecordedEngine, query: str, name: str = "dmqr") -> Completion:
    return one(engine, ask(query, name=name))


class TestRecorded(EngineContract):
    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path) -> None:
        keyword = {"text": "tea, green", "usage": {"prompt_tokens": 90, "cached_tokens": 60, "completion_tokens": 4}}
        record = {"query": self.answered, "completions": {"dmqr": "general: green tea", "keyword": keyword}}
        self._path = tmp_path / "recorded.jsonl"
        self._path.write_text(json.dumps(record) + "\n")

    def settings(self) -> RecordedSettings:
        return RecordedSettings(kind="recorded", path=str(self._path))


def test_a_query_is_found_in_any_spelling(recorded: Recorded) -> None:
    engine = recorded({"query_id": 7, "query": "Ｇreen  TEA", "completions": {"dmqr": "x"}})
    assert answer(engine, " green\ttea ").text == "x"


def test_text_usage_reason_and_model_come_through_and_bare_text_has_stopped_by_itself(recorded: Recorded) -> None:
    usage = {"prompt_tokens": 200, "cached_tokens": 180, "completion_tokens": 512}
    record = {"text": "half", "finish_reason": "length", "usage": usage, "model": "big-1"}
    engine = recorded({"query": "tea", "completions": {"dmqr": record, "bare": "x"}})
    completion, bare = answer(engine, "tea"), answer(engine, "tea", "bare")
    assert (completion.text, completion.finish_reason, completion.model) == ("half", "length", "big-1")
    assert (completion.prompt_tokens, completion.cached_tokens, completion.completion_tokens) == (200, 180, 512)
    assert (bare.finish_reason, bare.model, bare.prompt_tokens, bare.completion_tokens) == ("stop", "recorded", 0, 0)
    assert (bare.error_reason, bare.error_message) == (None, None)


def test_samples_are_a_list(recorded: Recorded) -> None:
    samples = ["green tea", {"text": "black tea", "usage": {"completion_tokens": 4}}]
    engine = recorded({"query": "tea", "completions": {"rewrite": samples}})
    first, second, third = (one(engine, ask("tea", name="rewrite(n=3)", recorded_as="rewrite", sample=n)) for n in range(3))
    assert [(each.text, each.completion_tokens) for each in (first, second)] == [("green tea", 0), ("black tea", 4)]
    assert (third.text, third.error_reason, "sample 3" in str(third.error_message)) == (None, "not_recorded", True)


@pytest.mark.parametrize(("query", "name"), [("coffee", "dmqr"), ("tea", "keyword")])
def test_what_is_not_there_is_not_recorded_and_nothing_stands_in(recorded: Recorded, query: str, name: str) -> None:
    (_, completion), (_, known) = recorded(TEA).complete([ask(query, name=name), ask("tea")])
    assert (completion.text, completion.error_reason, known.text) == (None, "not_recorded", "x")
    assert repr(name) in str(completion.error_message)
    assert repr(query) in str(completion.error_message)


def test_lines_of_one_query_are_one_recording_of_one_query(recorded: Recorded) -> None:
    more = {"query": "TEA ", "completions": {"dmqr": {"text": "x"}, "general": "g"}}
    engine = recorded(
        {"query": "tea", "completions": {"dmqr": "x", "keyword": "k"}}, "", more, {"query": "sea", "completions": {}}
    )
    assert [answer(engine, "tea", name).text for name in ("dmqr", "keyword", "general")] == ["x", "k", "g"]
    assert len(engine._lines) == 2


def test_lines_that_contradict_each_other_are_refused_naming_both(recorded: Recorded) -> None:
    with pytest.raises(RewriterError, match="line 3: has another text for 'dmqr' than line 1"):
        recorded(TEA, "", {"query": "Tea", "completions": {"dmqr": "y"}})


def completed(value: str) -> str:
    return f'{{"query": "tea", "completions": {{"dmqr": {value}}}}}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "needs the key query with a string; found: list"),
        ('{"question": "tea", "completions": {}}', "needs the key query with a string; found: completions, question"),
        ('{"query": 3, "completions": {}}', "needs the key query with a string"),
        ('{"query": "tea"}', "needs the key completions"),
        ('{"query": "tea", "completions": ["x"]}', "needs the key completions"),
        (completed("null"), "completion 'dmqr' must be a string"),
        (completed("[]"), "completion 'dmqr' is a list without a completion"),
        (completed('["x", ["y"]]'), "completion 'dmqr' must be a string"),
        (completed('{"txt": "x"}'), "completion 'dmqr' must be a string"),
        (completed('{"text": "x", "finish_reason": 1}'), "finish_reason that is not a string"),
        (completed('{"text": "x", "usage": [1]}'), "usage that is not an object"),
        (completed('{"text": "x", "usage": {"prompt_tokens": -1}}'), "is not a whole number of 0 or more, found: -1"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(recorded: Recorded, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(RewriterError) as refused:
        recorded({"query": "ok", "completions": {}}, line)
    assert f"{tmp_path}/completions.jsonl, line 2: " in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_file_without_a_record_is_refused(recorded: Recorded, lines: list[str]) -> None:
    with pytest.raises(RewriterError, match="the file ends without a record"):
        recorded(*lines)


def test_a_byte_order_mark_and_windows_line_ends_do_not_count(recorded: Recorded) -> None:
    assert answer(recorded("\ufeff" + json.dumps(TEA) + "\r\n\r"), "tea").text == "x"


@pytest.mark.parametrize("packed", ["gz", "zst"])
def test_a_recording_may_be_packed(tmp_path: Path, packed: str) -> None:
    data = json.dumps(TEA).encode()
    path = tmp_path / f"recorded.jsonl.{packed}"
    path.write_bytes(gzip.compress(data) if packed == "gz" else pa.compress(data, "zstd", asbytes=True))
    with closing(RecordedEngine(RecordedSettings(kind="recorded", path=str(path)))) as engine:
        assert answer(engine, "tea").text == "x"


def test_half_a_surrogate_pair_becomes_text_that_can_be_written(recorded: Recorded) -> None:
    engine = recorded(r'{"query": "tea \ud800", "completions": {"dmqr": "x \ud83d y"}}')
    assert answer(engine, "TEA \ud800").text == "x ? y"


def test_its_identity_is_of_the_content_and_not_of_the_path(recorded: Recorded) -> None:
    first, same, other = recorded(TEA, file="a"), recorded(TEA, file="b"), recorded(TEA | {"note": "more"}, file="c")
    assert first.identity() == same.identity() != other.identity()
    assert first.identity()["kind"] == first.kind == "recorded"
