"""The contract of engines."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from dmqr.testing.settings import HOSTILE, SettingsContract
from rewriters.engines import Engine, Request, open_engine
from rewriters.engines.settings import EngineSettings


class EngineContract(SettingsContract[EngineSettings]):
    """The contract of engines."""

    answered = "tea"
    """A query that it answers, under the requests' names `dmqr` and `keyword`."""

    def opened(self) -> Engine:
        """Returns an engine; may be overridden."""
        return open_engine(self.settings())

    def request(self, query: str, name: str = "dmqr", query_id: str = "q1") -> Request:
        """Returns a request."""
        return Request(query_id, query, name, f"Rewrite.\n\nQuery: {query}", "0" * 16, None, {"max_tokens": 64})

    def test_every_request_comes_back_once(self) -> None:
        """The same objects, in any order, those that failed, too."""
        with closing(self.opened()) as engine:
            asked = [self.request(self.answered, name, f"q{n}") for n in range(3) for name in ("dmqr", "keyword")]
            asked += [self.request(text, query_id=f"h{n}") for n, text in enumerate(HOSTILE)]
            answered = [request for request, _ in engine.complete(asked)]
            assert sorted(map(id, answered)) == sorted(map(id, asked))

    def test_an_answer_is_text_and_usage_or_an_error_as_data(self) -> None:
        """Of each request one of both; counts add up."""
        with closing(self.opened()) as engine:
            asked = [self.request(self.answered), *(self.request(text, query_id=f"h{n}") for n, text in enumerate(HOSTILE))]
            for request, completion in engine.complete(asked):
                assert (completion.text is None) == (completion.error_reason is not None), request
                if completion.text is not None:
                    completion.text.encode("utf-8")
                else:
                    assert str(completion.error_reason).isidentifier()
                    assert completion.error_message
                    assert "\n" not in completion.error_message
                assert 0 <= completion.cached_tokens <= completion.prompt_tokens
                assert completion.completion_tokens >= 0
                assert completion.seconds >= 0
                assert completion.attempts >= 1

    def test_nothing_asked_is_nothing_answered(self) -> None:
        """A batch may be empty."""
        with closing(self.opened()) as engine:
            assert list(engine.complete([])) == []

    def test_it_can_be_left_half_way_and_asked_again(self) -> None:
        """A shard that is given up leaves requests in flight."""
        with closing(self.opened()) as engine:
            half = iter(engine.complete([self.request(self.answered), self.request(self.answered, "keyword")]))
            next(half)
            del half
            assert len(list(engine.complete([self.request(self.answered), self.request(self.answered, "keyword")]))) == 2

    def test_several_threads_may_ask_at_a_time(self) -> None:
        """Several blocks of a worker are under way."""
        with closing(self.opened()) as engine:

            def answered(number: int) -> int:
                asked = [self.request(self.answered, query_id=f"{number}-{n}") for n in range(3)]
                return len([request for request, _ in engine.complete(asked) if any(request is each for each in asked)])

            with ThreadPoolExecutor(3) as threads:
                assert [*threads.map(answered, range(3))] == [3, 3, 3]

    def test_its_identity_is_json_and_stable(self) -> None:
        """The identity is part of the key of each completion."""
        with closing(self.opened()) as engine:
            identity = engine.identity()
            assert json.loads(json.dumps(identity)) == identity == engine.identity()

    def test_starting_and_closing_twice_does_nothing(self) -> None:
        """Both may be called again."""
        engine = self.opened()
        for call in (engine.start, engine.start, engine.close, engine.close):
            call()
