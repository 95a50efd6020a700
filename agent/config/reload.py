"""Applies a changed configuration: on SIGHUP, and when the file, or the ConfigMap that it is in, has changed.

The agent refuses a bad configuration and keeps the running one.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog

from agent.clock import Clock
from agent.config.loading import load
from agent.config.model import Config, own_ports
from agent.config.tenancy import forbidden
from agent.errors import ConfigError
from agent.offload import in_thread
from agent.tasks import REMEDY

log = structlog.get_logger()

READ_TIMEOUT_SECONDS = 10.0
"""The largest file takes a fifth of it on a slow machine; a disk that hangs takes longer."""
POLL_SECONDS = 5.0
SETTLE_SECONDS = 1.0
"""A changed file is read after it has stayed the same for so long: the first half of a file may be valid, with fewer identities."""


class RestartNeeded(ConfigError):  # noqa: N818  # a finding
    """The file is good, but changes what only a restart can change."""


class Reloader:
    """Knows the running configuration."""

    def __init__(
        self, path: Path, environ: Mapping[str, str], config: Config, apply: Callable[[Config], Awaitable[None]], clock: Clock
    ) -> None:
        self._path = path
        self._environ = environ
        self.running = config
        self._opened = config
        """The configuration that the process was started with: its listeners stay open through every reload."""
        self._apply = apply
        self._clock = clock
        self._seen = _stamp(path)
        self._reading = False
        """A thread is still reading the file."""
        self.asked = asyncio.Event()
        """Set by SIGHUP."""
        self.successful = True
        self.succeeded_at = clock.now()
        self.refused: tuple[str, ...] = ()
        """Why the current file was refused, a line for each reason; empty if its configuration is running."""
        self.restart_needed = False
        """Whether it was refused only because its changes need a restart."""

    async def run(self) -> None:
        """Reload on each change and on each SIGHUP, without end."""
        while True:
            if await self._clock.wait(self.asked, POLL_SECONDS):
                self.asked.clear()
            elif not await self._changed():
                continue
            self._seen = _stamp(self._path)
            await self.reload()

    async def _changed(self) -> bool:
        """Return whether the file has changed since it was read, and its writer has finished."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return False
        return not await self._clock.wait(self.asked, SETTLE_SECONDS) and stamp == _stamp(self._path)

    async def reload(self) -> bool:
        """Read the file and apply it; return False if it is refused.

        Raises any other exception, a bug, after recording it in `refused`; the next `run` reads the file again.
        """
        try:
            config = await self._read()
            refuse_restart(self._opened, config)
        except ConfigError as error:
            self.successful = False
            self.refused = tuple(str(error).splitlines())
            self.restart_needed = isinstance(error, RestartNeeded)
            log.error("config.refused", file=str(self._path), errors=error.message.splitlines(), remedy=error.remedy)  # noqa: TRY400
            return False
        except Exception as error:
            self._unread(f"cannot read {self._path}", error)
            raise
        try:
            await self._apply(config)
        except Exception as error:
            self._unread(f"cannot apply {self._path}", error)
            raise
        self.running = config
        self.successful, self.succeeded_at, self.refused, self.restart_needed = True, self._clock.now(), (), False
        log.info("config.reloaded", file=str(self._path), identities=len(config.identities))
        if names := [identity.name for identity in config.identities if forbidden(identity, config.tenancy)]:
            remedy = "allow them in `tenancy`, or remove them: the agent refuses to start with this file"
            log.error("config.forbids", file=str(self._path), identities=names, remedy=remedy)
        return True

    async def _read(self) -> Config:
        """Return the configuration, read in a thread: a large or bad file takes seconds. Raises ConfigError, also after the timeout."""
        if self._reading:
            self._seen = None
            raise ConfigError(
                f"{self._path}: the agent is still reading the file", remedy="check the disk that holds it, or make the file smaller"
            )
        self._reading = True

        def work() -> Config:
            collecting = gc.isenabled()
            gc.disable()  # a collection stops every thread, for 0.3 s among the nodes of a large file, which reference counts free
            try:
                return load(self._path, self._environ, reload=True)
            finally:
                self._reading = False
                if collecting:
                    gc.enable()

        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                return await in_thread("read configuration", work)
        except TimeoutError:
            self._seen = None  # so that it is read again
            failure = ConfigError(
                f"{self._path}: cannot read the file within {READ_TIMEOUT_SECONDS:g} s",
                remedy="check the disk that holds it, or make the file smaller",
            )
        except RuntimeError:  # no thread could be started
            self._reading = False
            raise
        raise failure

    def _unread(self, failed: str, error: Exception) -> None:
        """Name the kind only: the message may hold a secret."""
        self.successful, self._seen = False, None
        self.refused, self.restart_needed = (f"{failed}: {type(error).__name__} ({REMEDY})",), False


def refuse_restart(opened: Config, wanted: Config) -> None:
    """Raise ConfigError if only a restart leads from the configuration that the process opened to the wanted one."""
    changes = [
        name
        for name, one, other in (
            ("issuer", opened.issuer, wanted.issuer),
            ("admin.listen", opened.admin.listen, wanted.admin.listen),
            ("metadata.listen", opened.metadata.listen, wanted.metadata.listen),
            ("control.socket", opened.control.socket, wanted.control.socket),
            ("control.ledger", opened.control.ledger, wanted.control.ledger),
            ("serve.port", own_ports(opened), own_ports(opened) | own_ports(wanted)),  # a removed port stays open and answers 404
            ("metadata, closed until now,", not _serves(opened) and _serves(wanted), False),
        )
        if one != other
    ]
    if changes:
        raise RestartNeeded(f"changes of {', '.join(changes)} need a restart", remedy="restart the agent, or undo the change")


def _serves(config: Config) -> bool:
    return any(identity.serve.dialects for identity in config.identities)


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
