"""A server of Chat Completions with two tiers, as OpenAI describes flex: it may be refused, be slow, or not be what answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.rewriters.fake_server import Body, FakeServer, Reply, completion, refusal

FULL = refusal(429, "Resource Unavailable: flex has no capacity now, try again later", code="resource_unavailable")
PROMPT, CACHED, COMPLETION = 1000, 400, 100  # tokens of an answer
AS_ASKED = object()


class FlexServer(FakeServer):
    """The server; `sent` is what came by prompt and tier, `answered` what was answered.

    refusals: of a prompt at flex, before it is taken there. slow: prompts that flex never answers. reports: what the answer
    to a prompt says of its tier; AS_ASKED: the truth. capacity: sends that flex takes at a time, beyond which it refuses.
    """

    def __init__(
        self,
        refusals: Callable[[str], float] = lambda prompt: 0,
        *,
        slow: Callable[[str], bool] = lambda prompt: False,
        reports: Callable[[str], object] = lambda prompt: AS_ASKED,
        capacity: float = float("inf"),
        wording: Reply = FULL,
        **more: Any,
    ) -> None:
        super().__init__(answer=self._tiered, **more)
        self.refusals, self.slow, self.reports, self.wording, self.capacity = refusals, slow, reports, wording, capacity
        self.sent: Counter[tuple[str, str]] = Counter()
        self.answered: Counter[str] = Counter()
        self._at_flex, self._asked = 0, dict[str, str]()  # the latter: the tier of a prompt's last send

    def prompt(self, body: Body) -> str:
        return str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"])  # a step has a system message, too

    def tier(self, body: Body) -> str:
        """The tier that a request asks for."""
        return str(body.get("service_tier", "standard"))

    def by_tier(self, tier: str) -> int:
        """The sends to a tier."""
        return sum(n for (_, asked), n in self.sent.items() if asked == tier)

    async def _complete(self, request: Any) -> Any:
        body = json.loads(await request.read())
        at_flex = self.tier(body) == "flex"
        self._at_flex += at_flex
        try:
            return await super()._complete(request)
        finally:
            self._at_flex -= at_flex

    def _tiered(self, body: Body) -> Reply | None:
        prompt, tier = self.prompt(body), self.tier(body)
        self.sent[prompt, tier] += 1
        if tier == "flex":
            if self.sent[prompt, tier] <= self.refusals(prompt) or self._at_flex > self.capacity:
                return self.wording
            if self.slow(prompt):
                return Reply(fault="hang")
        self.answered[tier] += 1
        self._asked[prompt] = tier
        return None

    def good(self, text: str, prompt: str) -> Body:
        usage = {"prompt_tokens": PROMPT, "completion_tokens": COMPLETION, "prompt_tokens_details": {"cached_tokens": CACHED}}
        said = self.reports(prompt)
        if said is AS_ASKED:
            said = "flex" if self._asked[prompt] == "flex" else "default"
        return completion(text, usage) | ({} if said is None else {"service_tier": said})
