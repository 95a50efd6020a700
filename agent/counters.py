"""Counts of what happened, plain numbers that `metrics.py` shows at scrape time.

The parts that count need not know Prometheus, and the numbers of an identity that is gone go with it.
"""

from bisect import bisect_left
from collections import Counter
from typing import Literal

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; the last is the longest an attempt may take by default."""


TaskKind = Literal["start", "refresh", "source", "delivery", "withdrawal", "serviceaccount", "variants", "reload", "events", "issuer"]
"""What the agent's tasks do; the first six for one identity each."""


class Histogram:
    """How long things took, in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Counters:
    """The counters of the process, each by its labels in the order of its metric."""

    def __init__(self) -> None:
        self.refreshes: Counter[tuple[str, str]] = Counter()
        """By identity and result."""
        self.refresh_seconds: dict[str, Histogram] = {}
        """By provider."""
        self.writes: Counter[tuple[str, str]] = Counter()
        """By sink and result."""
        self.handed_out_valid: Counter[tuple[str, str]] = Counter()
        """By identity and via (endpoint or helper)."""
        self.handed_out_stale: Counter[tuple[str, str]] = Counter()
        self.metadata_requests: Counter[tuple[str, str]] = Counter()
        """By dialect and HTTP status code."""
        self.task_failures: Counter[str] = Counter()
        """By kind of task."""

    def refreshed(self, identity: str, provider: str, result: str, seconds: float) -> None:
        """One attempt of the keeper has ended."""
        self.refreshes[identity, result] += 1
        self.refresh_seconds.setdefault(provider, Histogram()).observe(seconds)

    def forget(self, identity: str, sinks: tuple[str, ...] = ()) -> None:
        """An identity is gone, and these sinks with it."""
        for counter in (self.refreshes, self.handed_out_valid, self.handed_out_stale):
            for labels in [labels for labels in counter if labels[0] == identity]:
                del counter[labels]
        self.retire(sinks)

    def retire(self, sinks: tuple[str, ...]) -> None:
        """Nothing is written to these sinks any more."""
        for labels in [labels for labels in self.writes if labels[0] in sinks]:
            del self.writes[labels]
