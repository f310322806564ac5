"""Seconds and answers by tier of one engine whose server's tier flex is there, away, or takes less than is sent.

    python tests/benchmarks/flex_rate.py [--requests 1500] [--seconds 0.2] [--in-flight 64]

The server answers every request after so many seconds, and refuses those beyond what flex takes at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rewriters.engines import Request
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from tests.support.rewriters.flex_server import FlexServer


def measure(name: str, requests: int, seconds: float, in_flight: int, tier: str | None = "flex", **server: Any) -> None:
    with FlexServer(seconds=seconds, **server) as running:
        settings = {"model": "tiny", "base_url": running.address, "max_in_flight": in_flight, "tier": tier}
        engine = OpenaiEngine(OpenaiSettings.model_validate({"kind": "openai"} | settings))
        asked = [Request(str(n), str(n), "dmqr", str(n), "0" * 16) for n in range(requests)]
        began, found = perf_counter(), Counter[str]()
        for _, one in engine.complete(asked):
            found[one.tier or "unnamed"] += 1
        took = perf_counter() - began
        engine.close()
        words = ", ".join(f"{n:,} {answered}" for answered, n in found.most_common())
        print(f"{name:<16} {took:6.1f} s  {words}; {running.sent.total():,} sends", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=0.2, help="that every answer takes")
    parser.add_argument("--in-flight", type=int, default=64)
    given = vars(parser.parse_args())
    most = given["in_flight"]
    measure("no tier", **given, tier=None)
    measure("flex is there", **given)
    for part in (0.75, 0.25):
        measure(f"flex takes {round(part * most)}", **given, capacity=round(part * most))
    measure("flex is away", **given, refusals=lambda prompt: float("inf"))


if __name__ == "__main__":
    main()
