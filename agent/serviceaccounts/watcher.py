"""Watches the ServiceAccount of one identity, and reports which principal it names.

The rules, which `identities/bound.py` carries out: the agent withdraws at once what it was granted for a principal that the
ServiceAccount no longer names, or for a ServiceAccount that no longer exists, and only then starts the next one. While the API
server cannot be reached, the last observation holds.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from agent.config.model import Identity
from agent.errors import Defect, NotReady, Reaction, RefreshError, Rejected, frames
from agent.kube.client import Kube
from agent.kube.errors import Attempt, absent
from agent.kube.watch import Event, Watch
from agent.liveness import within
from agent.record import Observation
from agent.schedule import backoff_seconds
from agent.serviceaccounts.annotations import ObservedServiceAccount, account_of, effective, followed, named, sighted
from agent.serviceaccounts.pace import LONGEST_REST_SECONDS, Pace
from agent.serviceaccounts.wanted import Bound, Unbound, Unreachable, Wanted
from agent.sources.kubernetes import KubernetesSettings, ServiceAccount
from agent.toolbox import Toolbox

log = structlog.get_logger()


DENIED_PAUSE_SECONDS = 600.0
"""Between tries to watch for an identity that works without, if the agent was never allowed to; the first ones come sooner."""
FIRST_DENIED_PAUSE_SECONDS = 5.0


class ServiceAccountWatcher:
    """One for each identity of source `kubernetes`."""

    def __init__(self, identity: Identity, toolbox: Toolbox) -> None:
        self.identity = identity
        """As configured."""
        self.last_observed: ObservedServiceAccount | None = None
        self.observation = Observation()
        self.reported = False
        """Whether anything was reported yet."""
        self.follows = followed(identity) is not None
        """Whether annotations name the principal; else the configuration does, and only the ServiceAccount's UID counts."""
        self._toolbox = toolbox
        self._wanted: Wanted | None = None
        """As reported last, outages aside."""
        self._said = ""
        self._pace = Pace()
        self._bugs = 0
        """In a row."""

    async def wanted(self) -> AsyncGenerator[Wanted, None]:
        """Yield the wanted state whenever it may have changed; for ever."""
        account = account_of(self.identity)
        source = self.identity.source
        if account is None or not isinstance(source, KubernetesSettings) or self._toolbox.kube is None:
            error = Rejected(f"{self.identity.name}: no Kubernetes API server is configured")
            self.reported = True
            yield Unbound(error) if self.follows else Unreachable(error)
            return
        pause = FIRST_DENIED_PAUSE_SECONDS
        while True:
            async with aclosing(self._watch(self._toolbox.kube.client(source.kubeconfig), account)) as reports:
                async for wanted in reports:
                    yield wanted
            await self._toolbox.clock.sleep(pause * (0.5 + 0.5 * self._toolbox.random.random()))
            pause = min(2 * pause, DENIED_PAUSE_SECONDS)

    async def _watch(self, kube: Kube, account: ServiceAccount) -> AsyncGenerator[Wanted, None]:
        """Yield the reports of one watch; it ends only if the identity works without it and the agent was never allowed to watch."""
        watch = Watch(
            kube,
            f"/api/v1/namespaces/{account.namespace}/serviceaccounts",
            _question(account),
            clock=self._toolbox.clock,
            random=self._toolbox.random,
            whose=self.identity.name,
            query=[("fieldSelector", f"metadata.name={account.name}")],  # by which `resourceNames` of a Role can allow it
        )
        while True:
            rest = 0.0
            async with aclosing(watch.events()) as events:
                while not rest:
                    with within(None):  # silence of the API server ends by the watch's own timeout
                        event = await anext(events)
                    wanted, rest = self._paced(event, account)
                    if wanted:
                        yield wanted
                    if self._does_without(event):
                        return
            watch.restart()
            with within(None):
                await self._toolbox.clock.sleep(rest)

    def _does_without(self, event: Event) -> bool:
        """Return whether the agent was never allowed to watch, and the identity works without: the next try can wait."""
        refused = event.error is not None and event.error.reaction is Reaction.REJECTED
        return refused and not self.follows and self.observation.seen_at is None

    def _paced(self, event: Event, account: ServiceAccount) -> tuple[Wanted | None, float]:
        """Return the wanted state, None if it did not change; and the seconds to rest before the ServiceAccount is listed again."""
        before = self._wanted
        try:
            wanted = self.hear(event, account)
        except Exception as error:  # noqa: BLE001  # whatever an object holds, it ends no watcher
            self._bugs += 1
            return Unreachable(self._defect(error)), backoff_seconds(self._bugs, first=2.0, longest=LONGEST_REST_SECONDS)
        if wanted is None or isinstance(wanted, Unreachable):
            return wanted, 0.0
        self._bugs = 0
        if rest := self._pace.rest(wanted, self._toolbox.clock.now()):
            often = NotReady(f"{self.identity.name}: its ServiceAccount changes too often; the agent reads it again in {rest:g} s")
            self._say(often)
            self._wanted = Unbound(often)
            return self._wanted if isinstance(before, Bound) else None, rest
        repeated = isinstance(before, Unbound) and isinstance(wanted, Unbound) and before.error.message == wanted.error.message
        return None if repeated and event.kind != "listed" else wanted, 0.0

    def _defect(self, error: Exception) -> Defect:
        """Log an exception that nothing foresaw, once, without its message, which may hold a secret."""
        defect = Defect(
            f"{self.identity.name}: {type(error).__name__} while its ServiceAccount was read",
            remedy="this is a bug in the agent: please report it with the log",
        )
        if self._said != defect.message:
            log.error("follow.defect", identity=self.identity.name, error=type(error).__name__, frames=frames(error))
        self._say(defect)
        return defect

    def hear(self, event: Event, account: ServiceAccount) -> Wanted | None:
        """Return what an event calls for; None if it is about another ServiceAccount."""
        self.reported = True
        if event.error:
            self._say(event.error)
            if self.observation.watched:
                self.observation.seen_at = self._toolbox.clock.now()
            self.observation.watched, self.observation.error = False, event.error
            return Unreachable(event.error)
        self.observation.watched, self.observation.seen_at, self.observation.error = True, self._toolbox.clock.now(), None
        if event.kind == "resumed":
            self._said = ""
            return self._wanted
        ours = [one for one in event.objects if named(one, account)]
        if not ours and event.kind != "listed":
            return None
        seen = [last_observed for one in ours if (last_observed := sighted(one, account))] if event.kind != "deleted" else []
        self.last_observed = seen[0] if seen else None
        self.observation.exists = self.last_observed is not None
        try:
            if self.last_observed is None:
                said, remedy = absent(_question(account))
                raise Rejected(f"{self.identity.name}: {said}", remedy=remedy)
            identity = effective(self.identity, self.last_observed) if self.follows else self.identity
            self._wanted = Bound(identity, self.last_observed.uid)
            self._said = ""
        except RefreshError as error:
            self._say(error)
            self._wanted = Unbound(error)
        return self._wanted

    def _say(self, error: RefreshError) -> None:
        """Log a failure once, until it changes."""
        if self._said == error.message:
            return
        self._said = error.message
        if self.follows or self.observation.seen_at:
            log.warning("identity.not_followed", identity=self.identity.name, error=error.message, remedy=error.remedy)
        else:
            then = "a deletion of its ServiceAccount is noticed at the next refresh"
            log.info("identity.not_watched", identity=self.identity.name, error=error.message, then=then, remedy=error.remedy)


def _question(account: ServiceAccount) -> Attempt:
    return Attempt(verb="watch", resource="serviceaccounts", namespace=account.namespace, name=account.name, by_default=account.by_default)
