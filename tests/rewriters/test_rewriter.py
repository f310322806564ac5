"""From a query to requests, and from completions to rewrites."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rewriters.engines import Completion, Request, open_engine
from rewriters.engines.settings import RecordedSettings
from rewriters.rewriter import Rewriter, RewriteResult
from rewriters.strategy import RewriterError, load_strategy

FOUR = ["general", "keyword", "pseudo_answer", "core_content"]
DECODING = {"temperature": 0.0, "max_tokens": 512}
TEXTS = {
    "general": "green tea caffeine",
    "keyword": "green tea, caffeine",
    "pseudo_answer": "It has 30 mg.",
    "core_content": "tea",
}


def said(text: str | None, **more: object) -> Completion:
    return Completion(text, "stop", "a-model", **more)  # type: ignore[arg-type]


class TestRequests:
    def test_the_joint_call_is_one_request_with_a_schema(self) -> None:
        (request,) = Rewriter(FOUR, "joint", DECODING).requests("id1", "how much caffeine has tea")
        assert (request.query_id, request.query, request.name) == ("id1", "how much caffeine has tea", "dmqr")
        assert request.prompt.endswith("Query: how much caffeine has tea")
        assert request.schema is not None
        assert request.schema["required"] == FOUR
        assert request.decoding == DECODING
        assert len(request.prompt_hash) == 16

    def test_separate_calls_are_one_request_per_strategy_named_by_it(self) -> None:
        requests = Rewriter(FOUR, "separate", DECODING).requests("id1", "tea")
        assert [request.name for request in requests] == FOUR
        assert all(request.schema is None for request in requests)
        assert len({request.prompt_hash for request in requests}) == 4

    def test_no_strategies_make_no_requests(self) -> None:
        rewriter = Rewriter([], "joint", DECODING)
        assert rewriter.requests("id1", "tea") == []
        assert rewriter.read([]) == ([], [])

    def test_the_hash_is_of_the_template_not_of_the_query(self) -> None:
        rewriter = Rewriter(FOUR, "joint", DECODING)
        assert rewriter.requests("a", "tea")[0].prompt_hash == rewriter.requests("b", "coffee")[0].prompt_hash
        assert (
            rewriter.requests("a", "tea")[0].prompt_hash != Rewriter(FOUR[:3], "joint", {}).requests("a", "tea")[0].prompt_hash
        )

    def test_a_joint_prompt_of_one_s_own_is_the_prompt_and_in_the_hash(self) -> None:
        rewriters = [Rewriter(FOUR, "joint", DECODING, prompt) for prompt in (None, "One: {query}", "Two: {query}")]
        ours, one, two = (rewriter.requests("a", "tea")[0] for rewriter in rewriters)
        assert (one.name, one.prompt, one.schema) == ("dmqr", "One: tea", ours.schema)
        assert len({request.prompt_hash for request in (ours, one, two)}) == 3
        assert len({json.dumps(rewriter.identity()) for rewriter in rewriters}) == 3

    def test_the_order_in_the_config_changes_nothing(self) -> None:
        one, other = Rewriter(FOUR, "joint", DECODING), Rewriter(FOUR[::-1], "joint", DECODING)
        assert one.requests("a", "tea") == other.requests("a", "tea")
        assert one.identity() == other.identity()

    def test_a_strategy_outside_the_joint_call_has_one_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dataclasses import replace

        from rewriters import rewriter as module

        alone = replace(load_strategy("keyword"), joint=False)
        monkeypatch.setattr(module, "load_strategy", lambda name: alone if name == "keyword" else load_strategy(name))
        planned = Rewriter(["general", "keyword"], "joint", {})
        requests = planned.requests("a", "tea")
        assert [request.name for request in requests] == ["dmqr", "keyword"]
        rewrites, failures = planned.read([(requests[0], said('{"general": "tea"}')), (requests[1], said("tea"))])
        assert [rewrite.strategy for rewrite in rewrites] == ["general", "keyword"]
        assert failures == []

    @pytest.mark.parametrize(
        ("strategies", "calls", "message"),
        [
            (["keywords"], "joint", r"unknown strategy 'keywords'; did you mean 'keyword'\? \(known: .*general"),
            (["general", "general"], "joint", "'general' is listed twice"),
            (FOUR, "seperate", r"unknown value of rewrite.calls 'seperate'; did you mean 'separate'\?"),
        ],
    )
    def test_what_cannot_be_planned_is_refused(self, strategies: list[str], calls: str, message: str) -> None:
        with pytest.raises(RewriterError, match=message):
            Rewriter(strategies, calls, {})


class TestRead:
    def test_a_joint_answer(self) -> None:
        rewriter = Rewriter(FOUR, "joint", DECODING)
        (request,) = rewriter.requests("a", "how much caffeine has green tea")
        rewrites, failures = rewriter.read([(request, said(json.dumps(TEXTS)))])
        assert failures == []
        searched = {"pseudo_answer": "passage"}
        assert rewrites == [
            RewriteResult(name, 1, TEXTS[name], 1.0, searched.get(name, "query"), "a-model", request.prompt_hash, "json", None)
            for name in FOUR
        ]

    def test_separate_answers_in_any_order(self) -> None:
        rewriter = Rewriter(FOUR, "separate", DECODING)
        requests = rewriter.requests("a", "how much caffeine has green tea")
        rewrites, failures = rewriter.read([(request, said(TEXTS[request.name])) for request in reversed(requests)])
        assert [(r.strategy, r.text, r.prompt_hash, r.parsed_as) for r in rewrites] == [
            (request.name, TEXTS[request.name], request.prompt_hash, "salvage") for request in requests
        ]
        assert failures == []

    def test_an_error_of_the_engine_passes_through_to_every_strategy_of_the_request(self) -> None:
        rewriter = Rewriter(FOUR, "joint", DECODING)
        (request,) = rewriter.requests("a", "tea")
        broken = Completion(None, None, "m", attempts=3, error_reason="timed_out", error_message="no answer in 60 s")
        rewrites, failures = rewriter.read([(request, broken)])
        assert rewrites == []
        assert [(f.strategy, f.reason, f.message, f.raw, f.attempts) for f in failures] == [
            (name, "timed_out", "no answer in 60 s", None, 3) for name in FOUR
        ]

    def test_one_failed_strategy_leaves_the_others_alone_and_keeps_the_raw_answer(self) -> None:
        rewriter = Rewriter(FOUR, "joint", DECODING)
        (request,) = rewriter.requests("a", "how much caffeine has green tea")
        raw = json.dumps(TEXTS | {"keyword": "..."})
        rewrites, failures = rewriter.read([(request, said(raw, attempts=2))])
        assert [r.strategy for r in rewrites] == ["general", "pseudo_answer", "core_content"]
        assert [(f.strategy, f.reason, f.raw, f.attempts) for f in failures] == [("keyword", "echo", raw, 2)]

    def test_a_missing_completion_fails_its_strategies_only(self) -> None:
        rewriter = Rewriter(FOUR, "separate", DECODING)
        requests = rewriter.requests("a", "how much caffeine has green tea")
        rewrites, failures = rewriter.read([(r, said(TEXTS[r.name])) for r in requests if r.name != "keyword"])
        assert len(rewrites) == 3
        assert [(f.strategy, f.reason) for f in failures] == [("keyword", "missing")]
        assert {f.reason for f in rewriter.read([])[1]} == {"missing"}

    def test_no_text_and_no_error_is_empty(self) -> None:
        rewriter = Rewriter(["keyword"], "separate", DECODING)
        (request,) = rewriter.requests("a", "tea")
        ((failure,),) = [rewriter.read([(request, said(None))])[1]]
        assert failure.reason == "empty"

    def test_a_raw_answer_can_always_be_written(self) -> None:
        rewriter = Rewriter(["keyword"], "separate", DECODING)
        (request,) = rewriter.requests("a", "tea")
        (failure,) = rewriter.read([(request, said("a\ud83d\nb"))])[1]
        assert failure.raw is not None
        failure.raw.encode("utf-8")

    def test_a_cut_answer_keeps_what_was_whole(self) -> None:
        rewriter = Rewriter(FOUR, "joint", DECODING)
        (request,) = rewriter.requests("a", "how much caffeine has green tea")
        cut = Completion(json.dumps(TEXTS)[:-8], "length", "m")
        rewrites, failures = rewriter.read([(request, cut)])
        assert [r.text for r in rewrites] == [TEXTS[name] for name in FOUR[:3]]
        assert [(f.strategy, f.reason) for f in failures] == [("core_content", "truncated")]


class TestIdentity:
    def test_it_is_json_and_the_same_for_the_same(self) -> None:
        identity = Rewriter(FOUR, "joint", DECODING).identity()
        assert json.loads(json.dumps(identity)) == identity == Rewriter(FOUR, "joint", DECODING).identity()

    def test_whatever_decides_the_rewrites_changes_it(self) -> None:
        variants = [
            Rewriter(FOUR, "joint", DECODING),
            Rewriter(FOUR, "separate", DECODING),
            Rewriter(FOUR[:3], "joint", DECODING),
            Rewriter(FOUR, "joint", DECODING | {"temperature": 0.7}),
            Rewriter([], "joint", DECODING),
        ]
        assert len({json.dumps(variant.identity(), sort_keys=True) for variant in variants}) == len(variants)


@pytest.mark.parametrize("file", ["cranfield_a", "musique_a", "scifact_a"])
def test_every_recorded_joint_completion_gives_its_four_lines(file: str) -> None:
    shared = os.environ.get("DMQR_SHARED")
    if not shared:
        pytest.skip("DMQR_SHARED is not set: the recorded completions are not here")
    path = Path(shared) / "recorded" / f"{file}.jsonl"
    engine = open_engine(RecordedSettings(kind="recorded", path=str(path)))
    rewriter = Rewriter(FOUR, "joint", DECODING)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 100
    for record in records:
        answered: list[tuple[Request, Completion]] = list(engine.complete(rewriter.requests("x", record["query"])))
        rewrites, failures = rewriter.read(answered)
        assert failures == []
        assert {rewrite.parsed_as for rewrite in rewrites} == {"labelled"}
        true_lines = [line.split(": ", 1)[1] for line in record["completions"]["dmqr"].split("\n")]
        assert [rewrite.text for rewrite in rewrites] == true_lines
    engine.close()
