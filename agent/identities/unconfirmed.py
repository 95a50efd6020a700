"""Files of an earlier process, while the agent may not watch the ServiceAccount that names their principal.

The agent cannot see that principal, so it serves nothing. A token request says whether the ServiceAccount still exists and which
UID it has: the files of another one are withdrawn at once. Files of this one stay until the first thing in them expires.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog
from msgspec.structs import replace

from agent import sources
from agent.claims import read_token
from agent.config.model import Identity
from agent.errors import Ended, RefreshError, Rejected, Unavailable
from agent.model import Key, Source
from agent.offload import in_thread
from agent.schedule import Backoff, retry_delay
from agent.settings import Duration
from agent.sinks.files import orphan
from agent.sinks.files.manifest import NAME
from agent.sinks.files.sink import FilesSettings
from agent.sources.kubernetes import MIN_LIFETIME_SECONDS, KubernetesSettings
from agent.store import Store
from agent.toolbox import Toolbox

log = structlog.get_logger()

AUDIENCE = "workload-identity-agent"
"""Of tokens that only show a UID: no cloud and no API server accepts them."""
CONFIRM_SECONDS = 300.0
"""Between two token requests for one identity that the API server has answered."""
REQUEST_TIMEOUT_SECONDS = 10.0
DISK_TIMEOUT_SECONDS = 5.0
REQUEST_BACKOFF = Backoff(initial=1.0, max=60.0)


@dataclass(frozen=True, slots=True)
class Held:
    """What files of an identity say of themselves."""

    uid: str
    """Of the ServiceAccount, by the token; empty if there is no such token."""
    until: datetime | None
    """When the first thing in them expires; None if they do not say."""


class Unconfirmed:
    """The files of one identity whose ServiceAccount has not been seen by this process."""

    def __init__(self, identity: Identity, store: Store, toolbox: Toolbox, *, pending: Callable[[], bool]) -> None:
        """`pending`: whether the watch is denied, and the ServiceAccount still unseen."""
        self._identity = identity
        self._store = store
        self._toolbox = toolbox
        self._pending = pending

    async def ended(self) -> RefreshError | None:
        """Return why the files have to be withdrawn, as soon as that is known; None once the ServiceAccount was seen or no file is left."""
        source = _source(self._identity, self._toolbox)
        clock, failures = self._toolbox.clock, 0
        while source and self._pending():
            held = await self._held()
            if held is None:
                return None
            left = (held.until - clock.now()).total_seconds() if held.until else 0.0
            if left <= 0:
                return Rejected(
                    f"{self._identity.name}: its files have expired, and the agent cannot see which principal its ServiceAccount names",
                    remedy="let the agent watch it (docs/rbac/watch.yaml)",
                )
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    token = await source.fetch([AUDIENCE])
                failures, pause = 0, CONFIRM_SECONDS
                if held.uid and token and token.account_uid not in {"", held.uid} and self._pending():
                    return Rejected(
                        f"{self._identity.name}: its ServiceAccount was created anew, and the agent cannot see its principal",
                        remedy="let the agent watch it (docs/rbac/watch.yaml)",
                    )
            except Ended as error:
                return error
            except (RefreshError, TimeoutError) as error:
                failures += 1
                reaction = error.reaction if isinstance(error, RefreshError) else Unavailable.reaction
                pause = retry_delay(reaction, failures, REQUEST_BACKOFF, self._toolbox.random, remaining=left)
            await clock.sleep(min(pause, left))
        return None

    async def _held(self) -> Held | None:
        """Return what the store holds under earlier settings, else what the files say; None if there is neither."""
        grant = self._store.newest(Key(self._identity.name))
        if grant and grant.token:
            return Held(grant.token.account_uid, grant.until)
        for settings in self._identity.sinks:
            try:
                async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
                    found = await in_thread(f"read {self._identity.name}", partial(self._read, settings))
            except (OSError, RefreshError, TimeoutError) as error:
                log.warning("delivery.not_read", identity=self._identity.name, sink=str(settings.location), error=str(error) or "timeout")
                return Held("", self._toolbox.clock.now())  # files that cannot be read are not kept on trust
            if found:
                return found
        return None

    def _read(self, settings: FilesSettings) -> Held | None:
        names = settings.names
        found = orphan.held(settings.location.place, self._identity.name, names.get(NAME, NAME), names.get("token", "token"))
        if found is None:
            return None
        manifest, token = found
        uid = ""
        if token:
            try:
                uid = read_token(
                    token.decode("ascii", "replace").strip(), whose=self._identity.name, now=self._toolbox.clock.now()
                ).account_uid
            except Rejected:
                uid = ""  # the manifest still says when the files end
        return Held(uid, min((end for end in (manifest.token.exp, manifest.credential.exp) if end), default=None))


def _source(identity: Identity, toolbox: Toolbox) -> Source | None:
    """Return a source of the shortest tokens that the API server grants; None without an API server."""
    settings = identity.source
    if not isinstance(settings, KubernetesSettings) or toolbox.kube is None:
        return None
    return sources.build(replace(settings, lifetime=Duration(MIN_LIFETIME_SECONDS), bound_to=None), identity.name, toolbox)
