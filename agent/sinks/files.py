"""Files on a shared volume, laid out as kubelet's AtomicWriter lays out a projected volume."""

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

from agent.errors import Rejected, RefreshError, Unavailable
from agent.model import Delivery, Grant, Legacy, Paths, Secret
from agent.offload import in_thread
from agent.manifest import NAME, describe
from agent.settings import Duration, FileMode, Settings
from agent.sinks._volume import Volume
from agent.toolbox import Toolbox

T = TypeVar("T")


class FilesSettings(Settings, tag="files", tag_field="type"):
    """Where, for whom, and under which names."""

    directory: str
    mount_path: str | None = None
    """Where the consumer mounts the directory, if elsewhere."""
    mode: FileMode = FileMode(0o640)
    group: str | int | None = None
    owner: str | int | None = None
    names: dict[str, str] = {}
    grace: Duration = Duration(30)
    """How long a replaced generation lives on."""
    adopt: bool = True
    """False where the agent shares its uid with the workload."""


class FilesSink:
    """One identity's directory."""

    def __init__(self, settings: FilesSettings, identity: str, digest: str, toolbox: Toolbox) -> None:
        self.name = f"files:{settings.directory}"
        self._settings = settings
        self._identity = identity
        self._digest = digest
        path = os.path.abspath(settings.directory)  # noqa: PTH100
        self.paths = Paths(directory=PurePosixPath(settings.mount_path or path), names=settings.names)
        self.volume = Volume(path, identity, digest, self.paths.name(NAME), toolbox)
        self.volume.grace = float(settings.grace.seconds)

    async def write(self, grant: Grant) -> None:
        files = self._render(grant)
        manifest = describe(grant, self._digest, files)
        await self._run("write", lambda: self.volume.write(files, manifest))

    async def read(self) -> Delivery | None:
        return await self._run("read", self.volume.read)

    async def adopt(self) -> Legacy | None:
        if not self._settings.adopt:
            return None
        found = await self._run("adopt", self.volume.adopt)
        if found is None:
            return None
        usual = {name: usual for usual, name in self._settings.names.items()}
        files = {usual.get(name, name): Secret(content.decode()) for name, content in found.contents.items()}
        return Legacy(token=files.get("token"), files=files, delivery=found.manifest.delivery(0))

    async def withdraw(self) -> None:
        await self._run("withdraw", self.volume.withdraw)

    async def close(self) -> None:
        self.volume.close()

    def _render(self, grant: Grant) -> Mapping[str, bytes]:
        files = {name: secret.reveal() for name, secret in grant.credential.files(self.paths).items()}
        if grant.token:
            files |= {**grant.token.companions, "token": grant.token.value.reveal()}
        return {self.paths.name(name): text.encode() for name, text in files.items()}

    async def _run(self, verb: str, call: Callable[[], T]) -> T:
        try:
            return await in_thread(f"files-{self._identity}", call)
        except OSError as error:
            raise Unavailable(f"{self._identity}: cannot {verb} {self._settings.directory}: {error.strerror}") from error
