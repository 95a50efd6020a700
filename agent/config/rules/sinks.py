"""Rules about sinks and every other path that the agent uses."""

import grp
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import PurePath

from agent.config.fault import Finding, Place
from agent.config.model import Config
from agent.config.wording import nearest
from agent.providers.generic import GenericSettings
from agent.sinks import SinkSettings
from agent.sources.file import FileSettings

RENAMABLE_FILES = ("token", "credentialsFile", "credentials", "config", "ca.crt", "namespace")
"""Files of an identity's directory that `names` can rename."""
FIXED_FILES = ("grant.json", "authorization")
"""Files of the directory whose names are fixed."""
MAX_NAME_BYTES = 255
"""NAME_MAX of Linux."""
MAX_PATH_DEPTH = 64
"""Directories above a file. Resolving a path costs a system call and a copy of the path for each."""


def sinks(config: Config) -> Iterator[tuple[Place, SinkSettings]]:
    """Yield every sink, and its place in the configuration."""
    for index, identity in enumerate(config.identities):
        yield from ((("identities", index, "sinks", position), sink) for position, sink in enumerate(identity.sinks))


def located(config: Config) -> Iterator[tuple[Place, SinkSettings, PurePath]]:
    """Yield every sink's directory with symbolic links resolved, unless `written` refuses it."""
    for place, sink in sinks(config):
        if sink.directory and not _deep(sink.directory):
            yield place, sink, PurePath(os.path.realpath(sink.directory))


def _deep(path: str) -> bool:
    return path.count("/") > MAX_PATH_DEPTH


def apart(config: Config) -> Iterator[Finding]:
    """Refuse a directory that is the same as, inside or around another sink's or that of the issuer's keys."""
    taken: dict[PurePath, Place] = {}
    inside: dict[PurePath, Place] = {}
    if config.issuer and config.issuer.state and not _deep(config.issuer.state):
        _take(PurePath(os.path.realpath(config.issuer.state)), ("issuer", "state"), taken, inside)
    for place, _, mine in located(config):
        around = next((taken[path] for path in mine.parents if path in taken), None)
        how, other = "is", taken.get(mine)
        if not other:
            how, other = ("is inside", around) if around else ("holds", inside.get(mine))
        if other:
            message = f"{how} another's directory: give each its own, side by side"
            yield Finding(place=(*place, "directory"), message=message, other=other, rests_on=(other,))
        _take(mine, (*place, "directory"), taken, inside)


def _take(path: PurePath, place: Place, taken: dict[PurePath, Place], inside: dict[PurePath, Place]) -> None:
    taken.setdefault(path, place)
    for parent in path.parents:
        inside.setdefault(parent, place)


def directories(config: Config) -> Iterator[Finding]:
    """Refuse a directory that cannot be made, and one that an atomic writer replaces."""
    for place, sink, around in located(config):
        within = {*PurePath(os.path.abspath(sink.directory)).parts, *around.parts}  # noqa: PTH100  # Path.absolute keeps `..`
        hidden = next((part for part in sorted(within) if part.startswith("..")), None)
        if hidden:
            message = f"is below `{hidden}`, which an atomic writer replaces: choose a directory outside of it"
            yield Finding(place=(*place, "directory"), message=message)
        obstacle = next((path for path in (around, *around.parents) if os.path.lexists(path)), None)
        if obstacle and not os.path.isdir(obstacle):  # noqa: PTH112  # no error where it may not be looked at
            message = f"{obstacle} exists and is not a directory: choose another, or move it away"
            yield Finding(place=(*place, "directory"), message=message)


def written(config: Config) -> Iterator[Finding]:
    """Refuse paths that are empty or too deep, and a relative mount path."""
    paths: list[tuple[Place, str]] = [(("control", "socket"), config.control.socket)]
    if config.issuer:
        paths.append((("issuer", "state"), config.issuer.state))
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, FileSettings):
            paths.append((("identities", index, "source", "path"), identity.source.path))
    paths += [((*place, "directory"), sink.directory) for place, sink in sinks(config)]
    yield from (Finding(place=place, message="empty: write a path") for place, path in paths if not path)
    deep = f"has more than {MAX_PATH_DEPTH} nested directories: choose a shorter path"
    yield from (Finding(place=place, message=deep) for place, path in paths if _deep(path))
    for place, sink in sinks(config):
        if sink.mount_path is not None and not sink.mount_path.startswith("/"):
            message = "must be absolute: write the path at which the consumer mounts it, such as /var/run/identity"
            yield Finding(place=(*place, "mountPath"), message=message)


def circular(config: Config) -> Iterator[Finding]:
    """Refuse a source that reads the token from its own identity's sink."""
    for index, identity in enumerate(config.identities):
        if not isinstance(identity.source, FileSettings) or not identity.source.path or _deep(identity.source.path):
            continue
        path = PurePath(os.path.abspath(identity.source.path))  # noqa: PTH100  # as above
        for position, sink in enumerate(identity.sinks):
            if sink.directory and path.is_relative_to(os.path.abspath(sink.directory)):  # noqa: PTH100  # as above
                place = ("identities", index, "source", "path")
                other: Place = ("identities", index, "sinks", position, "directory")
                message = "is in this identity's own sink: name the file that another program writes"
                yield Finding(place=place, message=message, other=other, rests_on=(other,))


def names(config: Config) -> Iterator[Finding]:
    """Refuse names of files that cannot be, or that two files have."""
    for place, sink in sinks(config):
        taken = {name: name for name in (*FIXED_FILES, *(file for file in RENAMABLE_FILES if file not in sink.names))}
        for file, name in sink.names.items():
            here = (*place, "names", file)
            if file not in RENAMABLE_FILES:
                meant = nearest(file, RENAMABLE_FILES)
                hint = f", did you mean `{meant}`?" if meant else f": allowed are {', '.join(RENAMABLE_FILES)}"
                yield Finding(place=here, message=f"the agent does not write a file of that name{hint}")
            elif not name or "/" in name or name == "." or name.startswith("..") or len(os.fsencode(name)) > MAX_NAME_BYTES:
                message = f"not a plain file name: write one without `/`, not beginning with `..`, of at most {MAX_NAME_BYTES} bytes"
                yield Finding(place=here, message=message)
            elif name in taken:
                yield Finding(place=here, message=f"{taken[name]} already has the name {name!r}: choose another")
            else:
                taken[name] = file


def owners(config: Config) -> Iterator[Finding]:
    """Refuse an owner or group that this machine does not know."""
    for place, sink in sinks(config):
        yield from _known(place, "owner", sink.owner, pwd.getpwnam)
        yield from _known(place, "group", sink.group, grp.getgrnam)


def modes(config: Config) -> Iterator[Finding]:
    """Warn of files that other users can write."""
    for place, sink in sinks(config):
        if sink.mode.bits & 0o022:
            message = "lets other users than the agent's write the files, and so choose the workload's identity: use 0640"
            yield Finding(place=(*place, "mode"), message=message, warning=True)


def exposed(config: Config) -> Iterator[Finding]:
    """Warn of files that every user can read, with a token that more than one verifier accepts."""
    for index, identity in enumerate(config.identities):
        audiences = identity.provider.audiences
        if len(audiences) == 1 or (not audiences and not isinstance(identity.provider, GenericSettings)):
            continue
        good = f"each of its {len(audiences)} audiences" if audiences else "the API server, with all rights of the ServiceAccount"
        place: Place = ("identities", index, "provider", "audiences")
        for position, sink in enumerate(identity.sinks):
            if sink.mode.bits & 0o004:
                message = (
                    f"lets every user of the volume read a token that is valid for {good}: use 0640, or one audience for each identity"
                )
                here: Place = ("identities", index, "sinks", position, "mode")
                yield Finding(place=here, message=message, warning=True, other=place, rests_on=(place,))


def _known(place: Place, key: str, who: str | int | None, look_up: Callable[[str], object]) -> Iterator[Finding]:
    if isinstance(who, int) and not 0 <= who < (1 << 32) - 1:
        yield Finding(place=(*place, key), message="not a valid ID: write a number from 0 to 4294967294")
    elif isinstance(who, str):
        try:
            look_up(who)
        except (KeyError, ValueError):
            hint = "write the number without quotes" if who.isdigit() else "write its number, if only other machines know the name"
            yield Finding(place=(*place, key), message=f"this machine does not know that {key}: {hint}")


RULES = (apart, directories, written, circular, names, owners, modes, exposed)
