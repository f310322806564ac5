"""The invented service of `configs/plugins/hosted.py`, with the faults of a server of models."""

from __future__ import annotations

import json
from typing import Any

from tests.support.retrievers.fake_models import Body, FakeModels, Said


class JudgingService(FakeModels):
    """Judges candidates by `score`, whose values are shares."""

    def _post(self, path: str, body: Body) -> Said:
        if self.always is not None:
            return self.always
        texts = [one["content"] for one in body.get("candidates", [])]
        for text in [*texts, body.get("question", "")]:
            said, times = self._faults.get(text, (Said(), 0))
            with self._lock:
                self._shown[text] += 1
                if self._shown[text] <= times:
                    return said
        if path != "/api/judgements" or body.get("judge") != self.model or self._score is None:
            return Said(404, b'{"detail": "no such judge"}')
        shares = self._score(body["question"], texts)
        numbers = [one["number"] for one in body["candidates"]]
        judged: list[Any] = [{"number": n, "relevance": share} for n, share in zip(numbers, shares, strict=True)]
        return Said(content=json.dumps(self.spoil({"judged": judged[::-1]})).encode())

    @property
    def address(self) -> str:
        """Its base_url."""
        return super().address.removesuffix("/v1") + "/api"

    @property
    def judged(self) -> list[tuple[str, list[str]]]:
        """The questions of all requests with their candidates, but for the first ones of a client."""
        found = [(body["question"], [one["content"] for one in body["candidates"]]) for _, body in self.asked]
        return [one for one in found if one[0] != "a probe"]
