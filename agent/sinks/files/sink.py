"""The files sink: a shared volume with the layout of the kubelet's AtomicWriter.

`volume.py` does the blocking half; this module renders an identity's files and bounds the wait for the disk. On a volume
that is not in memory, the agent syncs each file, its directory, and after the swap the identity's directory, in this order
(fsync), so that a machine that loses power finds the old generation or the new one. Measured on ext4 for three files
and `grant.json`: 3 ms a generation with it, 1.4 ms without; tmpfs 0.4 ms. Once in many minutes that is nothing, so it is not optional.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeVar

import structlog

from agent.errors import NotReady, RefreshError, Rejected, Unavailable
from agent.model import Delivery, Grant, Location, Paths, PriorDelivery, Secret
from agent.offload import in_thread
from agent.settings import Duration, FileMode, Settings
from agent.sinks.files.atomic_writer import FileAttributes
from agent.sinks.files.errors import sort
from agent.sinks.files.manifest import NAME, describe
from agent.sinks.files.ownership import resolve
from agent.sinks.files.retention import Retention
from agent.sinks.files.volume import Volume
from agent.toolbox import Toolbox

T = TypeVar("T")

log = structlog.get_logger()

DISK_TIMEOUT_SECONDS = 9.0
"""For one operation; a little less than the courier's timeout, whose message says less."""
CLOSE_TIMEOUT_SECONDS = 1.0
"""For which a withdrawal, or a close, waits for an operation that is under way: as a rule it ends within milliseconds."""
MAX_NAME_BYTES = 255
"""NAME_MAX of Linux."""


class FilesSettings(Settings, tag="files", tag_field="type"):
    """The directory, its readers, and the names of its files."""

    directory: str
    mount_path: str | None = None
    """Where the consumer mounts the directory, if elsewhere."""
    mode: FileMode = FileMode(0o640)
    group: str | int | None = None
    owner: str | int | None = None
    names: dict[str, str] = {}
    grace: Duration = Duration(30)
    """How long a replaced generation is kept."""
    adopt: bool = True
    """False if the agent shares its uid with the workload."""

    @property
    def location(self) -> Location:
        """The directory as an absolute path; symlinks are not resolved."""
        return Location("files", os.path.abspath(self.directory))  # Path.absolute keeps `..`


class FilesSink:
    """One identity's directory."""

    def __init__(self, settings: FilesSettings, identity: str, digest: str, toolbox: Toolbox) -> None:
        self.name = f"files:{settings.directory}"
        self.location: Location = settings.location
        bound = log.bind(identity=identity, sink=self.name)
        self.retention = Retention(toolbox.clock, float(settings.grace.seconds), bound)
        self._settings = settings
        self._identity = identity
        self._digest = digest
        self._clock = toolbox.clock
        self._paths = Paths(directory=PurePosixPath(settings.mount_path or self.location.place), names=settings.names)
        self._volume = Volume(
            self.location.place,
            identity=identity,
            digest=digest,
            manifest=self._paths.name(NAME),
            retention=self.retention,
            toolbox=toolbox,
            log=bound,
        )
        self._turn = asyncio.Lock()
        self._guard = threading.Lock()
        self._busy_since: datetime | None = None
        self._idle = threading.Event()
        """Set while no thread is on its way to the disk."""
        self._idle.set()
        self._closing = False
        self._condemned = False
        self._condemned_wholly = False

    async def write(self, grant: Grant) -> None:
        files = self._render(grant)
        manifest = describe(grant, self._digest, files)
        await self._run("write to", lambda attributes: self._volume.write(files, manifest, attributes))

    async def read(self) -> Delivery | None:
        return await self._run("read", self._volume.read)

    async def adopt(self) -> PriorDelivery | None:
        if not self._settings.adopt:
            return None
        found = await self._run("read", self._volume.adopt)
        if found is None:
            return None
        usual = {name: usual for usual, name in self._settings.names.items()}
        try:
            files = {usual.get(name, name): Secret(content.decode()) for name, content in found.contents.items()}
        except UnicodeDecodeError:  # whole and ours, but no agent wrote that
            return None
        token = files.pop("token", None)
        return PriorDelivery(token=token, files=files, delivery=found.manifest.delivery(0))

    async def recall(self, name: str) -> Secret | None:
        kept = await self._run("read", lambda attributes: self._volume.recall(self._paths.name(name), attributes))
        return Secret(kept.decode("ascii", "replace")) if kept else None

    async def retain(self, name: str, text: Secret) -> None:
        self._volume.retained[self._paths.name(name)] = text.reveal().encode()
        await self._run("write to", self._volume.retain)

    async def withdraw(self) -> None:
        await self._withdraw(wholly=False)

    async def withdraw_all(self) -> None:
        await self._withdraw(wholly=True)

    async def _withdraw(self, *, wholly: bool) -> None:
        with self._guard:
            self._condemned = condemned = self._busy_since is not None
            self._condemned_wholly = wholly
        if condemned and await in_thread(f"await {self._identity}", lambda: self._idle.wait(CLOSE_TIMEOUT_SECONDS)):
            return  # the thread that was there withdrew it
        await self._run("withdraw", lambda attributes: self._volume.withdraw(attributes, wholly=wholly))

    async def close(self) -> None:
        with self._guard:
            self._closing = True
            busy = self._busy_since is not None
            if not busy:
                self._volume.close()
        if busy:  # so that the next process finds it unlocked
            await in_thread(f"await {self._identity}", lambda: self._idle.wait(CLOSE_TIMEOUT_SECONDS))

    def _render(self, grant: Grant) -> Mapping[str, bytes]:
        """Return the files to write, by name on disk. Raises Rejected if two would have the same name, or one an invalid name."""
        texts = {name: secret.reveal() for name, secret in grant.credential.files(self._paths).items()}
        if grant.token:
            texts |= {**grant.token.companions, "token": grant.token.value.reveal()}
        files: dict[str, bytes] = {}
        for usual, text in texts.items():
            name = self._paths.name(usual)
            if not 0 < len(name.encode()) <= MAX_NAME_BYTES or name == "." or name.startswith("..") or {"/", "\0"} & set(name):
                raise Rejected(
                    f"{self._identity}: {name!r} is not a valid name for the file {usual}",
                    remedy="change `names`: write one path element that does not begin with two dots",
                )
            if name in files or name == self._paths.name(NAME):
                raise Rejected(f"{self._identity}: two files of {self.name} have the name {name!r}", remedy="change `names`")
            files[name] = text.encode()
        return files

    async def _run(self, attempt: str, call: Callable[[FileAttributes], T]) -> T:
        """Return the result of the call, made where it cannot block the loop.

        One at a time: while a thread has not returned from the disk, the sink starts no second one and waits for none.
        """
        settings = self._settings
        async with self._turn:
            with self._guard:
                if self._busy_since is not None:
                    raise self._unanswered(attempt)
                self._busy_since, self._closing = self._clock.now(), False
                self._idle.clear()

            def work() -> T:
                try:
                    return call(resolve(mode=settings.mode.bits, owner=settings.owner, group=settings.group))
                finally:
                    self._finish()

            try:
                if self._volume.managed.quick():
                    return work()
                async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
                    return await in_thread(f"files {self._identity}", work)
            except TimeoutError as error:
                raise self._unanswered(attempt) from error
            except (NotReady, Rejected) as error:  # from modules that do not know the identity
                raise type(error)(f"{self._identity}: {error.message}", remedy=error.remedy) from error
            except OSError as error:
                raise sort(error, identity=self._identity, attempt=f"{attempt} {settings.directory}") from error

    def _finish(self) -> None:
        """Do, in the thread that did the work, what was requested meanwhile."""
        while True:
            with self._guard:
                if not self._condemned:
                    self._busy_since = None
                    if self._closing:
                        self._volume.close()
                    self._idle.set()
                    return
                self._condemned, wholly = False, self._condemned_wholly
            try:  # not under the guard, which the loop takes
                self._volume.withdraw(FileAttributes(mode=self._settings.mode.bits), wholly=wholly)
            except (OSError, RefreshError) as error:
                log.warning("withdrawal.failed", identity=self._identity, sink=self.name, error=str(error))

    def _unanswered(self, attempt: str) -> RefreshError:
        since = f" since {self._busy_since:%H:%M:%S} UTC" if self._busy_since else ""
        return Unavailable(
            f"{self._identity}: cannot {attempt} {self._settings.directory}: the disk has not answered{since}",
            remedy="check the volume; other identities do not wait for it",
        )
