"""Requests a second of the engine `openai`, against what its places could do.

    python tests/benchmarks/openai_rate.py [--requests 6000] [--in-flight 128] [--rounds 3] [--seconds 0.2]

A server in a process of its own answers every request after 200 ms, however many there are. Three threads send a third
each, as three shards do. The ideal is places / seconds in flight; the time is that of the whole, ramp-up included. Then
the same with 5 % of 503s and 1 % of requests that hang until they time out (2 s), where the ideal is by the mean time
that a request was in flight, all its sends together. Ends with exit code 1 where the ratio is below 0.9 or one is lost.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rewriters.engines import Completion, Request
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings

GOAL = 0.9
THREADS = 3
SERVER = Path(__file__).parents[1] / "support" / "rewriters" / "fake_server.py"
FAULTS = ["--unavailable", "0.05", "--hanging", "0.01"]


@dataclass(frozen=True)
class Round:
    """What one span over all requests did."""

    seconds: float
    answered: int
    failed: int
    sends: int
    in_flight: float  # mean seconds of a request, over its sends
    busy: float  # seconds of this process's CPU

    def rate(self) -> float:
        return (self.answered + self.failed) / self.seconds


def main() -> int:
    """Print the rates; 1 below the goal, or where a request has no answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="that the server takes for an answer")
    options = parser.parse_args()
    ratios, lost = [], 0
    for faults in ([], FAULTS):
        for number in range(options.rounds):
            one = measured(options, faults)
            ideal = options.in_flight / (one.in_flight if faults else options.seconds)
            ratios += [] if faults else [one.rate() / ideal]
            lost += options.requests - one.answered
            print(
                f"{'5 % 503, 1 % hanging' if faults else 'no faults':20} round {number + 1}: {one.rate():7.1f} requests/s, "
                f"ideal {ideal:7.1f}, ratio {one.rate() / ideal:.3f}; {one.answered} answered, {one.failed} failed, "
                f"{one.sends} sends, {one.in_flight * 1000:.0f} ms each, {one.busy / one.seconds:.0%} of a core",
                flush=True,
            )
    print(f"{options.in_flight} places: median ratio {statistics.median(ratios):.3f} (goal {GOAL}); without an answer: {lost}")
    return 0 if statistics.median(ratios) >= GOAL and not lost else 1


def measured(options: argparse.Namespace, faults: list[str]) -> Round:
    """One span, with a server and an engine of its own."""
    command = [sys.executable, str(SERVER), "--port", "0", "--seconds", str(options.seconds), *faults]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        settings = OpenaiSettings(
            kind="openai", model="tiny", base_url=address, max_in_flight=options.in_flight, timeout_seconds=2
        )
        engine = OpenaiEngine(settings)
        try:
            engine.start()
            parts = [requests(options.requests, part) for part in range(THREADS)]
            busy, began = time.process_time(), time.perf_counter()
            with ThreadPoolExecutor(THREADS) as pool:
                done = [one for part in pool.map(lambda part: answers(engine, part), parts) for one in part]
            seconds, busy = time.perf_counter() - began, time.process_time() - busy
        finally:
            engine.close()
            server.terminate()
    good = [one for one in done if one.text]
    sends = sum(one.attempts for one in done)
    return Round(seconds, len(good), len(done) - len(good), sends, statistics.fmean(one.seconds for one in done), busy)


def answers(engine: OpenaiEngine, part: list[Request]) -> list[Completion]:
    return [completion for _, completion in engine.complete(part)]


def requests(total: int, part: int) -> list[Request]:
    """A thread's share, with prompts of the length that a joint call has (about 350 words)."""
    instructions = "Rewrite the search query at the end for a search engine. " * 35
    decoding = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 512, "seed": 0}
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abcd"}}
    return [
        Request(str(n), f"query {n}", "dmqr", f"{instructions}\n\nQuery: {n}", "0" * 16, schema, decoding)
        for n in range(part, total, THREADS)
    ]


if __name__ == "__main__":
    sys.exit(main())
