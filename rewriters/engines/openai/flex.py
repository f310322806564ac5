"""The tier `flex` of a server: cheaper, slower, and refused while there is no capacity for it.

A request is asked of this tier until an answer comes, and of the standard tier from then on where

refused   it was refused too often for want of capacity, which is not billed: by itself, or, while the tier refuses all,
          the only request that is sent then; or it was not answered for `patience_minutes`
timeout   an answer took longer than `flex.timeout_seconds`; what the server has made of it may be billed
deadline  `flex.deadline_minutes` of the job are over
text      it goes to Completions, which has no tiers
unfit     the tier does not take it, though it has answered others; where it has not, the model has no such tier, and the
          engine ends: nothing is paid yet, and at the standard tier all would cost more than was asked for

Of the standard tier it is asked without any `service_tier`, as an engine without `tier` asks. Two more reasons are of answers:

unnamed   the tier was asked for, and the answer names none, so that it is priced as standard
other     the answer names another tier, by which it is priced

The tier has places of its own, since refusals tell of its capacity, and not of the server's limits of rate.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http import HTTPStatus

from cluster.outages import pause
from rewriters.engines import Request
from rewriters.engines.openai.aimd import AimdLimit, PatienceExceededError, Place
from rewriters.engines.openai.fields import error_details
from rewriters.engines.openai.protocol import FIELD_REJECTIONS, ChatResponse, RequestFailure
from rewriters.engines.openai.server import ChatServer
from rewriters.engines.settings import BegunOpenaiSettings, OpenaiSettings, ServerEngineSettings

_log = logging.getLogger(f"dmqr.{__name__}")

NAME, FIELD = "flex", "service_tier"
REFUSED, TIMED_OUT, DEADLINE, AS_TEXT, UNFIT = "refused", "timeout", "deadline", "text", "unfit"
UNNAMED, OTHER = "unnamed", "other"
SEVERAL = "several"  # the tier of a request whose answers, of which only the last is one, were billed by several
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds after refusals: capacity is not back in a moment, and waiting costs nothing
_BEYOND = 0.1  # seconds: after a pause that the deadline cuts off it is over by any clock
_NEAR = 1.0  # second from the deadline: who is waited for until then is not too slow
_NO_CAPACITY = 498  # of Groq
_CAPACITY = re.compile(r"unavailable|capacity|overloaded", re.I)  # a limit of rate is worded otherwise
_NAMED = re.compile(r"service[ _-]?tier|\bflex(?:ible)?[ _-](?:processing|tier)", re.I)


_WORDS = {
    REFUSED: "has no capacity at tier flex for some requests",
    TIMED_OUT: "takes longer at tier flex than flex.timeout_seconds for some requests",
    DEADLINE: "is not asked at tier flex any more, since the deadline is over (flex.deadline_minutes)",
    AS_TEXT: "has no tiers for prompts that are texts to go on with",
    UNFIT: "does not take some requests at tier flex",
    UNNAMED: "names no tier in answers for which tier flex was asked, so that they are priced as standard",
    OTHER: "answers by another tier where flex was asked for, at the price of that one",
}


@dataclass
class AskedTier:
    """Of which tier one request is asked.

    Attributes:
        asked: Of `flex`.
        tier_note: Why not, where that was asked for.
        refusals: For want of capacity.
        first_sent: When it was first sent to the tier that it is asked of, by `time.monotonic`: the patience begins there.
        billed: The tiers that its answers name.
    """

    asked: bool = False
    tier_note: str | None = None
    refusals: int = 0
    first_sent: float = 0.0
    billed: set[str | None] = field(default_factory=set)

    @property
    def fields(self) -> dict[str, str]:
        """Returns the fields of a request that ask for the tier."""
        return {FIELD: NAME} if self.asked else {}

    @property
    def billed_by(self) -> str | None:
        """Returns the tier that its answers are billed by; None: they name none."""
        return SEVERAL if len(self.billed) > 1 else next(iter(self.billed), None)

    def fall_back(self, why: str) -> None:
        """Asks the standard tier from now on."""
        self.asked, self.tier_note, self.first_sent = False, why, 0.0


class FlexTier:
    """When requests to a server are asked of the tier, if its settings say so; all use is on one event loop."""

    def __init__(self, settings: ServerEngineSettings, server: ChatServer, patience: float) -> None:
        """Starts without requests; `patience`: seconds for which one is refused at most."""
        self._settings = settings.flex if isinstance(settings, OpenaiSettings) and settings.tier == NAME else None
        self._deadline = settings.standard_from if isinstance(settings, BegunOpenaiSettings) else math.inf
        self._model, self._standard_seconds = settings.model, settings.timeout_seconds
        self._server, self._patience = server, patience
        self._most_refusals = 0 if self._settings is None else self._settings.refusals
        self._limit = AimdLimit(settings.max_in_flight, most_probes=self._most_refusals)
        self._answered, self._warned = False, set[str]()

    def begin(self, request: Request) -> AskedTier:
        """Returns of which tier a request is asked first."""
        if self._settings is None:
            return AskedTier()
        return AskedTier(tier_note=AS_TEXT) if request.as_text else AskedTier(asked=True)

    async def place(self, of: AskedTier, held: AsyncExitStack) -> Place:
        """Returns a place at the tier, to be given back by `held`.

        Where none can be had, the request falls back, and the place is none.
        """
        if of.asked and self._left() <= 0:
            of.fall_back(DEADLINE)
        if of.asked:
            try:
                async with asyncio.timeout(None if self._deadline == math.inf else self._left()):
                    return await held.enter_async_context(self._limit.place())
            except PatienceExceededError:
                of.fall_back(REFUSED)
            except TimeoutError:
                of.fall_back(DEADLINE)
        return Place()

    def seconds(self, of: AskedTier) -> float | None:
        """Returns how long an answer is waited for; None: as long as one of the standard tier, as beyond the deadline."""
        if self._settings is None or not of.asked:
            return None
        return min(self._settings.timeout_seconds, max(self._standard_seconds, self._left()))

    def judge(
        self, of: AskedTier, result: ChatResponse | RequestFailure, status: int, content: object, place: Place
    ) -> float | None:
        """Returns the seconds until a request is sent again whose failure is one of the tier; None: it is no such failure.

        Args:
            of: Falls back where it has to.
            result: What was made of the answer.
            status: Of the answer; 0: none came.
            content: Of the answer.
            place: At the tier.

        Raises:
            RewriterError: The model has no such tier.
        """
        if self._settings is None or not of.asked:
            return None
        if isinstance(result, ChatResponse):
            place.outcome, self._answered = "ok", self._answered or result.tier == NAME
            return None
        return self._delay(of, result, status, content if isinstance(content, bytes) else b"", place)

    def _delay(self, of: AskedTier, failure: RequestFailure, status: int, said: bytes, place: Place) -> float | None:
        if lacks_tier(status, said):
            if not self._answered:
                words = f"{self._server.base} has no tier flex for the model {self._model!r} ({failure.message})"
                raise self._server.error("engine-setting", f"{words}; remove tier: flex, or name a model that has it")
            of.fall_back(UNFIT)
            return 0.0
        if failure.reason == "timeout":
            place.outcome = "failure"
            of.fall_back(TIMED_OUT if self._left() > _NEAR else DEADLINE)
            return 0.0
        if not is_refusal(status, said):
            return None
        place.outcome, of.refusals = "overload", of.refusals + 1
        wait = (failure.retry_after or 0.0) + pause(of.refusals, FIRST_PAUSE, LONGEST_PAUSE)
        if of.refusals >= self._most_refusals or time.monotonic() + wait > of.first_sent + self._patience:
            of.fall_back(REFUSED)
            return 0.0
        return min(wait, max(0.0, self._left()) + _BEYOND)

    def answered(self, of: AskedTier, tier: str | None) -> tuple[str | None, str | None]:
        """Returns the tier that a request is billed by whose answer names one, and why that is not the one asked for."""
        of.billed.add(tier)
        if of.asked and tier != NAME:
            of.tier_note = UNNAMED if tier is None else OTHER
        if of.tier_note is not None and of.tier_note not in self._warned:
            self._warned.add(of.tier_note)
            after = "" if of.tier_note in (UNNAMED, OTHER) else ": they are asked of the standard tier"
            _log.warning("%s %s%s; the run counts how many", self._server.base, _WORDS[of.tier_note], after)
        return of.billed_by, of.tier_note

    def _left(self) -> float:
        return self._deadline - time.time()


def is_refusal(status: int, content: bytes) -> bool:
    """Returns whether a server says that it has no capacity at a tier now."""
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        said = error_details(content)
        return bool(_CAPACITY.search(f"{said.code} {said.message}"))
    return status == _NO_CAPACITY


def lacks_tier(status: int, content: bytes) -> bool:
    """Returns whether a server says that the model cannot be asked of a tier."""
    if status not in FIELD_REJECTIONS:
        return False
    said = error_details(content)
    return bool(_NAMED.search(" ".join([*(said.named or ()), said.message])))
