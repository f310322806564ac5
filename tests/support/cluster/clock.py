"""Time that passes by waits alone, however busy the machine is."""

import threading
import time

from cluster.outages import pause as PAUSE


class Clock:
    """Stands for the module `time` where a module waits; and for `pause` where it waits by other means."""

    def __init__(self) -> None:
        self.now = 1.0
        self._began, self._lock = time.time() - self.now, threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return self._began + self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds

    def pause(self, failures: int, *_: float | None) -> float:
        """The pause after so many failures, which is over at once: none is left to wait."""
        self.sleep(PAUSE(failures))
        return 0.0
