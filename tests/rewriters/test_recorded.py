"""The recorded engine: what its file may hold, and what it says of one that is no recording."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.engines.recorded import RecordedEngine


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    return path


def answer(engine: RecordedEngine, query: str, name: str = "dmqr") -> Completion:
    ((_, completion),) = engine.complete([Request("q", query, name, query, "0" * 16)])
    return completion


@pytest.fixture
def opened() -> Iterator[Callable[[Path], RecordedEngine]]:
    """Opens engines, and closes them after the test."""
    engines: list[RecordedEngine] = []

    def open_one(path: Path) -> RecordedEngine:
        engines.append(RecordedEngine(path))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "completions.jsonl"


def test_a_query_is_found_in_any_spelling(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    engine = opened(written(path, {"query_id": 7, "query": "Ｇreen  TEA", "completions": {"dmqr": "x"}}))
    assert answer(engine, " green\ttea ").text == "x"


def test_text_usage_reason_and_model_come_through(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    usage = {"prompt_tokens": 200, "cached_tokens": 180, "completion_tokens": 512}
    record = {"text": "half", "finish_reason": "length", "usage": usage, "model": "big-1"}
    completion = answer(opened(written(path, {"query": "tea", "completions": {"dmqr": record}})), "tea")
    assert (completion.text, completion.finish_reason, completion.model) == ("half", "length", "big-1")
    assert (completion.prompt_tokens, completion.cached_tokens, completion.completion_tokens) == (200, 180, 512)


def test_bare_text_has_stopped_by_itself_and_used_nothing_known(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    completion = answer(opened(written(path, {"query": "tea", "completions": {"dmqr": "x"}})), "tea")
    assert (completion.finish_reason, completion.prompt_tokens, completion.completion_tokens) == ("stop", 0, 0)


@pytest.mark.parametrize(("query", "name"), [("coffee", "dmqr"), ("tea", "keyword")])
def test_what_is_not_there_is_not_recorded_and_nothing_stands_in(
    opened: Callable[[Path], RecordedEngine], path: Path, query: str, name: str
) -> None:
    completion = answer(opened(written(path, {"query": "tea", "completions": {"dmqr": "x"}})), query, name)
    assert (completion.text, completion.error_reason) == (None, "not_recorded")
    assert repr(name) in str(completion.error_message)
    assert repr(query) in str(completion.error_message)


def test_it_says_which_queries_it_knows(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    lines = [{"query": query, "completions": {name: "x"}} for query, name in (("Tea", "a"), ("sea", "a"), (" tea ", "b"))]
    assert list(opened(written(path, *lines)).queries()) == ["Tea", "sea"]


def test_lines_of_one_query_are_one_recording(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    engine = opened(
        written(
            path,
            {"query": "tea", "completions": {"dmqr": "x", "keyword": "k"}},
            "",
            {"query": "TEA ", "completions": {"dmqr": {"text": "x"}, "general": "g"}},
        )
    )
    assert [answer(engine, "tea", name).text for name in ("dmqr", "keyword", "general")] == ["x", "k", "g"]


def test_lines_that_contradict_each_other_are_refused_naming_both(path: Path) -> None:
    written(path, {"query": "tea", "completions": {"dmqr": "x"}}, "", {"query": "Tea", "completions": {"dmqr": "y"}})
    with pytest.raises(RewriterError, match="line 3: has another text for 'dmqr' than line 1"):
        RecordedEngine(path)


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
        ('{"query": "tea", "completions": {"dmqr": null}}', "completion 'dmqr' must be a string"),
        ('{"query": "tea", "completions": {"dmqr": {"txt": "x"}}}', "completion 'dmqr' must be a string"),
        (
            '{"query": "tea", "completions": {"dmqr": {"text": "x", "finish_reason": 1}}}',
            "finish_reason that is not a string",
        ),
        ('{"query": "tea", "completions": {"dmqr": {"text": "x", "usage": [1]}}}', "usage that is not an object"),
        (
            '{"query": "tea", "completions": {"dmqr": {"text": "x", "usage": {"prompt_tokens": -1}}}}',
            "prompt_tokens is not a whole number of 0 or more, found: -1",
        ),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(path: Path, line: str, said: str) -> None:
    written(path, {"query": "ok", "completions": {}}, line)
    with pytest.raises(RewriterError) as refused:
        RecordedEngine(path)
    assert f"{path}, line 2: " in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_a_record_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(RewriterError, match="the file ends without a record"):
        RecordedEngine(path)


def test_a_byte_order_mark_and_windows_line_ends_do_not_count(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    path.write_bytes(b'\xef\xbb\xbf{"query": "tea", "completions": {"dmqr": "x"}}\r\n\r\n')
    assert answer(opened(path), "tea").text == "x"


def test_half_a_surrogate_pair_becomes_text_that_can_be_written(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    written(path, r'{"query": "tea \ud800", "completions": {"dmqr": "x \ud83d y"}}')
    assert answer(opened(path), "TEA \ud800").text == "x ? y"


def test_its_identity_is_of_the_content_and_not_of_the_path(opened: Callable[[Path], RecordedEngine], tmp_path: Path) -> None:
    record = {"query": "tea", "completions": {"dmqr": "x"}}
    one, same = (opened(written(tmp_path / name, record)) for name in ("a", "b"))
    other = opened(written(tmp_path / "c", record | {"note": "more"}))
    assert one.identity() == same.identity() != other.identity()


@pytest.mark.slow
def test_a_large_recording_is_indexed_and_not_held(opened: Callable[[Path], RecordedEngine], path: Path) -> None:
    """20,000 lines of 2 KB: 40 MB on disk."""
    text = "word " * 400
    with path.open("w") as file:
        for n in range(20_000):
            file.write(json.dumps({"query": f"query {n}", "completions": {"dmqr": f"{n} {text}"}}) + "\n")
    started = process_time()
    tracemalloc.start()
    engine = opened(path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20_000 * 500
    assert process_time() - started < 15  # about 1 s, tracing included; a scan per query would take hours
    assert answer(engine, "query 19999").text == f"19999 {text}"
    engine.close()


def test_a_closed_recording_answers_nothing(path: Path) -> None:
    engine = RecordedEngine(written(path, {"query": "tea", "completions": {"dmqr": "x"}}))
    engine.close()
    with pytest.raises(ValueError, match="closed file"):
        answer(engine, "tea")
