"""Events on a ServiceAccount for its owner: one when its identity fails, and one when the identity works again.

The recorder posts one for each such change, and no two of a kind in five minutes: the next one counts the changes in between.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any

import structlog

from agent.config.model import Identity
from agent.errors import Reaction, RefreshError
from agent.kube.errors import ApiError, Attempt
from agent.model import Key
from agent.record import Failure, Record
from agent.sources.kubernetes import KubernetesSettings
from agent.store import Store
from agent.toolbox import Toolbox

log = structlog.get_logger()

COMPONENT = "workload-identity-agent"
QUIET_SECONDS = 300.0
"""Between two events of one kind about one identity."""
GATHERING_SECONDS = 1.0
"""Between a change and its event: a failure that has passed by then gets none."""
RETRY_SECONDS = 30.0
"""Until events are retried that the API server could not accept."""
BARRED_SECONDS = 600.0
"""Until events are retried in a namespace in which the agent may not create any: an operator may have granted the right."""
MAX_WAIT_SECONDS = 3600.0
"""For a change of the store, which ends the wait."""
IN_A_ROW = 3
"""Failures that may pass by themselves before an event reports them."""
MAX_MESSAGE_CHARACTERS = 1024
"""The limit that every version of the API server accepts."""


@dataclass(slots=True)
class Reported:
    """The events of one identity so far."""

    failing: bool = False
    """As seen last."""
    said: bool = False
    """The state that the last event reported."""
    at: dict[bool, datetime] = field(default_factory=dict)
    changes: Counter[bool] = field(default_factory=Counter)
    """Into each state, since it was reported."""
    failure: Failure | None = None
    """The last one."""


class EventRecorder:
    """One for the process. Identities of other sources get no events."""

    def __init__(self, store: Store, toolbox: Toolbox, identities: Callable[[], Mapping[str, Identity]], uid: Callable[[str], str]) -> None:
        """`uid`: returns the UID of an identity's ServiceAccount, empty if it is unknown."""
        self._store = store
        self._toolbox = toolbox
        self._identities = identities
        self._uid = uid
        self._told: dict[str, Reported] = {}
        self._barred: dict[tuple[str, str], datetime] = {}
        """Kubeconfig and namespace in which the agent may not create events, and when it retries."""
        self._reported: set[tuple[str, str]] = set()
        """Those that the log has named."""

    async def run(self) -> None:
        """Post events; for ever."""
        clock = self._toolbox.clock
        while True:
            news = list(self._news(clock.now()))
            if news:
                unsaid = [name for name in news if not await self._say(name)]
                if unsaid:
                    await clock.sleep(RETRY_SECONDS)
                continue
            held_back = any(told.failing != told.said for told in self._told.values())
            if await clock.wait(self._store.news, RETRY_SECONDS if held_back else MAX_WAIT_SECONDS):
                await clock.sleep(GATHERING_SECONDS)

    def _news(self, now: datetime) -> Iterator[str]:
        """Yield the identities that need an event now."""
        identities = self._identities()
        for name in [name for name in self._told if name not in identities]:
            del self._told[name]
        for name, identity in identities.items():
            record = self._store.record(Key(name))
            if not isinstance(identity.source, KubernetesSettings) or record is None:
                continue
            told = self._told.setdefault(name, Reported())
            failing = _failing(record, told)
            if failing != told.failing:
                told.failing = failing
                told.changes[failing] += 1
            before = told.at.get(failing)
            ripe = told.failing != told.said and (before is None or (now - before).total_seconds() >= QUIET_SECONDS)
            if ripe and not self._is_barred(identity.source, self._about(name, identity.source), now):
                yield name

    async def _say(self, name: str) -> bool:
        """Post the event; return whether it needs no retry."""
        identity, told = self._identities().get(name), self._told.get(name)
        if identity is None or told is None or not isinstance(identity.source, KubernetesSettings) or self._toolbox.kube is None:
            return True
        now, failing = self._toolbox.clock.now(), told.failing
        about = self._about(name, identity.source)
        if self._is_barred(identity.source, about, now):  # the API server refused another event a moment ago
            return True
        namespace = about["namespace"]
        place = (identity.source.kubeconfig or "", namespace)
        try:
            await self._toolbox.kube.client(identity.source.kubeconfig).send(
                "POST", f"/api/v1/namespaces/{namespace}/events", body=self._event(name, told, about, now)
            )
        except ApiError as error:
            if error.status in {401, 429} or error.status >= 500:
                return False
            if place not in self._reported or error.status != 403:
                question = Attempt(verb="create", resource="events", namespace=namespace)
                log.info("events.not_written", namespace=namespace, reason=f"the API server answered {error.status} to {question}")
            if error.status == 403:
                self._reported.add(place)
                self._barred[place] = now + timedelta(seconds=BARRED_SECONDS)
                return True
        except RefreshError:
            return False
        else:
            self._reported.discard(place)
        self._barred.pop(place, None)
        told.said, told.at[failing] = failing, now
        told.changes[failing] = 0
        return True

    def _about(self, name: str, source: KubernetesSettings) -> dict[str, str]:
        """Return the object of the event: the ServiceAccount, or the agent's own pod if the ServiceAccount does not exist."""
        account, uid = source.service_account, self._uid(name) or self._token_uid(name)
        identity = self._identities()[name]
        pod = self._toolbox.kube.pod if self._toolbox.kube else None
        if identity.provider.annotations() and not uid and pod:
            return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        found = {"apiVersion": "v1", "kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}
        return found | ({"uid": uid} if uid else {})

    def _is_barred(self, source: KubernetesSettings, about: Mapping[str, str], now: datetime) -> bool:
        until = self._barred.get((source.kubeconfig or "", about["namespace"]))
        return until is not None and now < until

    def _token_uid(self, name: str) -> str:
        """The UID in the newest token; `kubectl describe serviceaccount` shows events that name it only."""
        record = self._store.record(Key(name))
        token = record.grant.token if record and record.grant else None
        return token.account_uid if token else ""

    def _event(self, name: str, told: Reported, about: Mapping[str, str], now: datetime) -> dict[str, Any]:
        pod = self._toolbox.kube.pod if self._toolbox.kube else None
        moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        failure = told.failure
        if told.failing and failure:
            text = f"{failure.message} ({failure.remedy})" if failure.remedy else failure.message
        else:
            text = f"{name}: works again"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name'][:200].rstrip('.-')}.{token_hex(8)}", "namespace": about["namespace"]},
            "involvedObject": dict(about),
            "type": "Warning" if told.failing else "Normal",
            "reason": "IdentityFailed" if told.failing else "IdentityRecovered",
            "message": text if len(text) <= MAX_MESSAGE_CHARACTERS else f"{text[: MAX_MESSAGE_CHARACTERS - 1]}…",
            "count": max(1, told.changes[told.failing]),
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {"component": COMPONENT, **({"host": pod.name} if pod else {})},
            "reportingComponent": COMPONENT,
            "reportingInstance": pod.name if pod else "",
        }


def _failing(record: Record, told: Reported) -> bool:
    """Return whether the owner should know; a failure that may pass by itself counts after a few times in a row."""
    failures = [record.failure, *(sink_status.failure for sink_status in record.sink_statuses.values())]
    found = [failure for failure in failures if failure]
    grave = [failure for failure in found if failure.reaction.needs_a_change or failure.count >= IN_A_ROW]
    lasting = [failure for failure in grave if failure.reaction is not Reaction.NOT_READY]
    if lasting:
        told.failure = lasting[0]
        return True
    return told.failing if found or record.grant is None else False
