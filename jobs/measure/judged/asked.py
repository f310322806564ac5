"""What tells a judge from another of the same model: its prompt, decoding and weights, and gold answers that it is shown."""

from __future__ import annotations

import hashlib
import json

from jobs.chain.arms.judging import ACCURACY
from jobs.runs.folder import RunFolder

_OF_A_FILE = "content"  # of an engine that answers from a file, which has other answers for other queries


def judge_asked(run: RunFolder, kind: str) -> str | None:
    """Returns what tells how a run's judge was asked in one kind, 16 hex digits; None: the run's record does not say."""
    identity = run.record.get("identity") or {}
    prompts = {name: one for name, one in (identity.get("judge") or {}).items() if name.partition(".")[0] == kind}
    if not prompts:
        return None
    engines = {
        name: {key: of for key, of in one.get("engine", {}).items() if key != _OF_A_FILE} for name, one in prompts.items()
    }
    asked = {name: one | {"engine": engines[name]} for name, one in prompts.items()}
    gold = identity.get("gold_answers") if kind == ACCURACY else None
    return hashlib.sha256(json.dumps([asked, gold], sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
