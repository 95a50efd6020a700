"""Metrics for Prometheus: gauges are computed from the store at each scrape, counters come from `counters.py`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, get_args

from agent import __version__
from agent.clock import Clock
from agent.counters import BUCKETS, Counters, TaskKind
from agent.errors import Reaction
from agent.model import Key
from agent.record import Profile, Record, credential_span, token_span
from agent.schedule import State
from agent.store import Store

if TYPE_CHECKING:
    # Loaded by the first scrape, once: 18 ms that would come before the first token, and 2 MiB that an agent without scrapes would waste.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

RESULTS = ("success", "unchanged", *Reaction)
WRITES = ("success", *Reaction)
"""Of a sink. There from the start, like those of a refresh: `increase` does not see the first of what was not there before."""
KeyStates = Callable[[], Iterable[tuple[str, str, datetime]]]


class Reloads(Protocol):
    """How the last reading of the configuration went."""

    successful: bool
    succeeded_at: datetime


class Collector:
    """Answers one scrape."""

    def __init__(self, store: Store, counters: Counters, clock: Clock, reloads: Reloads, key_states: KeyStates = tuple) -> None:
        self._store = store
        self._counters = counters
        self._clock = clock
        self._reloads = reloads
        self._key_states = key_states

    def collect(self) -> Iterator["Metric"]:
        """Everything, once."""
        now = self._clock.now()
        entries = [(profile, record) for profile in self._store.profiles() if (record := self._store.record(Key(profile.name)))]
        yield from self._states(entries, now)
        yield from self._times(entries, now)
        yield from self._counts(entries)
        yield from self._process()

    def _states(self, entries: list[tuple[Profile, Record]], now: datetime) -> Iterator["Metric"]:
        counts = dict.fromkeys(State, 0)
        known = _gauge("wi_agent_identity_info", "Always 1: what an identity is made of.", labels=["identity", "source", "provider"])
        for profile, _ in entries:
            counts[self._store.state(profile.name, now)] += 1
            known.add_metric([profile.name, profile.source, profile.provider], 1)
        tokens = _gauge("wi_agent_tokens", "Identities by state, the worst of the grant and of what each sink stores.", labels=["state"])
        for state, count in counts.items():
            tokens.add_metric([state.value], count)
        yield tokens
        yield known

    def _times(self, entries: list[tuple[Profile, Record]], now: datetime) -> Iterator["Metric"]:
        labels = ["identity", "kind"]
        expiry = _gauge("wi_agent_token_expiry_timestamp_seconds", "When what the agent holds expires, Unix time.", labels=labels)
        issued = _gauge("wi_agent_token_issued_timestamp_seconds", "When what the agent holds was issued, Unix time.", labels=labels)
        delivered = _gauge(
            "wi_agent_delivered_expiry_timestamp_seconds",
            "When the delivered files expire, read back from the sink, Unix time.",
            labels=["identity", "sink", "kind"],
        )
        failures = _gauge("wi_agent_refresh_failures_consecutive", "Failed refreshes since the last good one.", labels=["identity"])
        seen = _gauge(
            "wi_agent_serviceaccount_last_seen_timestamp_seconds",
            "When an identity's ServiceAccount was last confirmed by a watch, Unix time.",
            labels=["identity"],
        )
        due = _gauge("wi_agent_next_refresh_timestamp_seconds", "When the agent acts next, Unix time.", labels=["identity"])
        for profile, record in entries:
            failures.add_metric([profile.name], record.failure.count if record.failure else 0)
            if record.account and (last_seen := record.account.last_seen(now)):
                seen.add_metric([profile.name], last_seen.timestamp())
            if record.due:
                due.add_metric([profile.name], record.due.timestamp())
            if record.grant:
                for kind, span in (("token", token_span(record.grant)), ("credential", credential_span(record.grant))):
                    if span:
                        expiry.add_metric([profile.name, kind], span.expires_at.timestamp())
                        issued.add_metric([profile.name, kind], span.issued_at.timestamp())
            for sink, sink_status in record.sink_statuses.items():
                found = sink_status.delivery
                for kind, expires in (("token", found and found.token_expires_at), ("credential", found and found.credential_expires_at)):
                    if expires:
                        delivered.add_metric([profile.name, sink, kind], expires.timestamp())
        yield from (expiry, issued, delivered, failures, due, seen)

    def _counts(self, entries: list[tuple[Profile, Record]]) -> Iterator["Metric"]:
        counters = self._counters
        refreshes = {(profile.name, result): 0 for profile, _ in entries for result in RESULTS} | counters.refreshes
        writes = {(sink, result): 0 for profile, _ in entries for sink in profile.sinks for result in WRITES} | counters.writes
        handed = {(profile.name, via): 0 for profile, _ in entries for via in ("endpoint", "helper")}
        yield _counter("wi_agent_refresh", "Attempts to refresh, by result.", ["identity", "result"], refreshes)
        yield _counter("wi_agent_writes", "Writes to sinks, by result.", ["sink", "result"], writes)
        yield _counter(
            "wi_agent_stale_tokens",
            "Credentials served while stale or inside their margin.",
            ["identity", "via"],
            handed | counters.handed_out_stale,
        )
        yield _counter("wi_agent_valid_tokens", "Credentials served in good time.", ["identity", "via"], handed | counters.handed_out_valid)
        yield _counter(
            "wi_agent_metadata_requests",
            "Requests to the metadata endpoint, by dialect and status code.",
            ["dialect", "code"],
            counters.metadata_requests,
        )
        yield _counter(
            "wi_agent_task_failures",
            "Tasks of the agent that an unexpected exception ended, and that were started again.",
            ["task"],
            {(task,): counters.task_failures[task] for task in get_args(TaskKind)},
        )
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

        seconds = HistogramMetricFamily("wi_agent_refresh_duration_seconds", "Fetch and exchange, seconds.", labels=["provider"])
        for provider, histogram in counters.refresh_seconds.items():
            cumulative = list(accumulate(histogram.counts))
            seconds.add_metric(
                [provider], [(str(bound), count) for bound, count in zip((*BUCKETS, "+Inf"), cumulative, strict=True)], histogram.sum
            )
        yield seconds

    def _process(self) -> Iterator["Metric"]:
        build = _gauge("wi_agent_build_info", "Always 1: the agent's version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield _gauge(
            "wi_agent_config_last_reload_successful", "1 if the configuration was good when last read.", value=int(self._reloads.successful)
        )
        yield _gauge(
            "wi_agent_config_last_reload_success_timestamp_seconds",
            "When a good configuration was last read, Unix time.",
            value=self._reloads.succeeded_at.timestamp(),
        )
        keys = _gauge(
            "wi_agent_issuer_key_state_timestamp_seconds", "Since when an issuer's key is in its state, Unix time.", labels=["kid", "state"]
        )
        for kid, state, since in self._key_states():
            keys.add_metric([kid, state], since.timestamp())
        yield keys


def expose(collector: Collector, accept: str) -> tuple[bytes, str]:
    """The scrape's body and content type, in the format the scraper asks for."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not a number
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


def _gauge(name: str, documentation: str, *, labels: Sequence[str] | None = None, value: float | None = None) -> "GaugeMetricFamily":
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    return GaugeMetricFamily(name, documentation, value=value, labels=labels)


def _counter(name: str, documentation: str, labels: list[str], values: Mapping[Any, float]) -> "CounterMetricFamily":
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    family = CounterMetricFamily(name, documentation, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
