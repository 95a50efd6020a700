"""Follows the ServiceAccount of one identity: who it is now, when it changes, when it goes.

The rules: what was granted to a principal that the ServiceAccount no longer names, or to one that no longer exists, is
withdrawn at once, and only then something new is taken up. While nothing can be seen, what was seen last holds.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from agent.config import Identity
from agent.errors import RefreshError, Rejected
from agent.kube.refusals import Question, absent
from agent.kube.watch import Event, Watch
from agent.liveness import within
from agent.principal import Sighting, effective, followed, named, sighted
from agent.sources.kubernetes import KubernetesSettings, ServiceAccount
from agent.toolbox import Toolbox

log = structlog.get_logger()


class Hosts(Protocol):
    """What a follower tells of what it sees."""

    async def settle(self, identity: Identity, uid: str) -> None:
        """This is who it is from now on; what another was granted goes first."""

    async def vacate(self, identity: Identity, error: RefreshError) -> None:
        """There is nobody for it to be; what it held goes."""

    def unseen(self, identity: Identity, error: RefreshError) -> None:
        """Nothing can be said at the moment."""

    def seen(self, identity: Identity) -> None:
        """It can again, and nothing has changed meanwhile."""


class Follower:
    """One for each identity with `fromServiceAccount`."""

    def __init__(self, identity: Identity, host: Hosts, toolbox: Toolbox) -> None:
        self.identity = identity
        """As configured."""
        self.turn = asyncio.Lock()
        """Held while a change is carried out, so that nobody ends it half done."""
        self.task: asyncio.Task[None] | None = None
        self.sighting: Sighting | None = None
        self._host = host
        self._toolbox = toolbox
        self._said = ""

    async def follow(self) -> None:
        """For ever."""
        account = followed(self.identity)
        source = self.identity.source
        if account is None or not isinstance(source, KubernetesSettings) or self._toolbox.kube is None:
            await self._carry_out(
                lambda: self._host.vacate(self.identity, Rejected(f"{self.identity.name}: there is no way to a Kubernetes API server here"))
            )
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
            await self.hear(event, account)

    async def hear(self, event: Event, account: ServiceAccount) -> None:
        """Does what an event calls for."""
        if event.error:
            self._say(event.error)
            self._host.unseen(self.identity, event.error)
            return
        if event.kind == "resumed":
            self._said = ""
            self._host.seen(self.identity)
            return
        ours = [one for one in event.objects if named(one, account)]
        if not ours and event.kind != "listed":
            return  # of somebody else
        seen = [sighting for one in ours if (sighting := sighted(one, account))] if event.kind != "deleted" else []
        self.sighting = seen[0] if seen else None
        try:
            if self.sighting is None:
                said, remedy = absent(_question(account))
                raise Rejected(f"{self.identity.name}: {said}", remedy=remedy)
            found, uid = effective(self.identity, self.sighting), self.sighting.uid
        except RefreshError as error:
            failure = error
            self._say(failure)
            await self._carry_out(lambda: self._host.vacate(self.identity, failure))
            return
        self._said = ""
        await self._carry_out(lambda: self._host.settle(found, uid))

    async def _carry_out(self, change: Callable[[], Awaitable[None]]) -> None:
        async with self.turn:
            await change()

    def _say(self, error: RefreshError) -> None:
        """Once for each new thing to say."""
        if self._said != error.message:
            self._said = error.message
            log.warning("identity.not_followed", identity=self.identity.name, error=error.message, remedy=error.remedy)


def _question(account: ServiceAccount) -> Question:
    return Question(verb="watch", resource="serviceaccounts", namespace=account.namespace, name=account.name, by_default=account.by_default)
