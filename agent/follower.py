"""Watches the ServiceAccount of one identity, and reports which principal it names.

The rules, which `following.py` carries out: what was granted to a principal that the ServiceAccount no longer names, or to one
that no longer exists, is withdrawn at once, and only then something new is started. While nothing can be seen, what was seen
last holds.
"""

from collections.abc import AsyncIterator

import structlog

from agent.config import Identity
from agent.errors import RefreshError, Rejected
from agent.kube.refusals import Question, absent
from agent.kube.watch import Event, Watch
from agent.liveness import within
from agent.principal import Sighting, effective, followed, named, sighted
from agent.sources.kubernetes import KubernetesSettings, ServiceAccount
from agent.toolbox import Toolbox
from agent.wanted import Bound, Unbound, Unreachable, Wanted

log = structlog.get_logger()


class Follower:
    """One for each identity with `fromServiceAccount`."""

    def __init__(self, identity: Identity, toolbox: Toolbox) -> None:
        self.identity = identity
        """As configured."""
        self.sighting: Sighting | None = None
        self._toolbox = toolbox
        self._wanted: Wanted | None = None
        """As reported last, outages aside."""
        self._said = ""

    async def wanted(self) -> AsyncIterator[Wanted]:
        """Which principal is wanted, whenever that may have changed; for ever."""
        account = followed(self.identity)
        source = self.identity.source
        if account is None or not isinstance(source, KubernetesSettings) or self._toolbox.kube is None:
            yield Unbound(Rejected(f"{self.identity.name}: there is no way to a Kubernetes API server here"))
            return
        watch = Watch(
            self._toolbox.kube.client(source.kubeconfig),
            f"/api/v1/namespaces/{account.namespace}/serviceaccounts",
            _question(account),
            clock=self._toolbox.clock,
            random=self._toolbox.random,
            whose=self.identity.name,
            query=[("fieldSelector", f"metadata.name={account.name}")],  # by which `resourceNames` of a Role can allow it
        )
        events = watch.events()
        while True:
            with within(None):  # silence of the API server ends by the watch's own timeout
                event = await anext(events, None)
            if event is None:
                return
            if wanted := self.hear(event, account):
                yield wanted

    def hear(self, event: Event, account: ServiceAccount) -> Wanted | None:
        """Return what an event calls for; None if it is about another ServiceAccount."""
        if event.error:
            self._say(event.error)
            return Unreachable(event.error)
        if event.kind == "resumed":
            self._said = ""
            return self._wanted
        ours = [one for one in event.objects if named(one, account)]
        if not ours and event.kind != "listed":
            return None
        seen = [sighting for one in ours if (sighting := sighted(one, account))] if event.kind != "deleted" else []
        self.sighting = seen[0] if seen else None
        try:
            if self.sighting is None:
                said, remedy = absent(_question(account))
                raise Rejected(f"{self.identity.name}: {said}", remedy=remedy)
            self._wanted = Bound(effective(self.identity, self.sighting), self.sighting.uid)
            self._said = ""
        except RefreshError as error:
            self._say(error)
            self._wanted = Unbound(error)
        return self._wanted

    def _say(self, error: RefreshError) -> None:
        """Once for each new thing to say."""
        if self._said != error.message:
            self._said = error.message
            log.warning("identity.not_followed", identity=self.identity.name, error=error.message, remedy=error.remedy)


def _question(account: ServiceAccount) -> Question:
    return Question(verb="watch", resource="serviceaccounts", namespace=account.namespace, name=account.name, by_default=account.by_default)
