"""Fingerprints of the files whose content is a part of an identity's settings: `caFile` and `kubeconfig`.

Another content behind the same path names another cluster or token service, whose tokens belong to another identity.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping

import structlog

from agent.config.model import Config, named_files
from agent.offload import in_thread

log = structlog.get_logger()

MAX_FILE_BYTES = 1 << 20
"""The size limit of a Kubernetes object, and so of a mounted ConfigMap's files."""
DISK_TIMEOUT_SECONDS = 5.0
UNREADABLE = ""
"""The fingerprint of a file that cannot be read."""


async def fingerprints(config: Config, before: Mapping[str, str]) -> Mapping[str, str]:
    """Return sha256 in hex, by path, of each file that identities of `config` name; those of `before` if the disk does not answer."""
    paths = {path for identity in config.identities for path in named_files(identity)}
    if not paths:
        return {}
    try:
        async with asyncio.timeout(DISK_TIMEOUT_SECONDS):
            return await in_thread("fingerprints", lambda: read(paths))
    except TimeoutError:
        log.warning("file.not_compared", files=sorted(paths), reason="the disk does not answer", remedy="look at the volume, then reload")
        return {path: before.get(path, UNREADABLE) for path in paths}


def read(paths: Iterable[str]) -> Mapping[str, str]:
    """Return sha256 in hex by path. Blocks on the disk."""
    return {path: _fingerprint(path) for path in paths}


def _fingerprint(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return UNREADABLE
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        return UNREADABLE
    return hashlib.sha256(content).hexdigest() if len(content) <= MAX_FILE_BYTES else UNREADABLE
