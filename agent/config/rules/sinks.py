"""Rules about what is written where."""

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

FILES = ("token", "credentialsFile", "credentials", "config", "ca.crt", "namespace")
"""What an identity's directory holds and can be renamed."""
TAKEN = ("grant.json", "authorization")
"""What it holds under one name only."""
LONGEST_NAME = 255
"""Bytes of a file name (NAME_MAX)."""


DEEPEST_PATH = 64
"""Directories above a file: each costs a system call, and what resolves a path copies it for each."""


def sinks(config: Config) -> Iterator[tuple[Place, SinkSettings]]:
    """Every sink, and where it stands."""
    for index, identity in enumerate(config.identities):
        yield from ((("identities", index, "sinks", position), sink) for position, sink in enumerate(identity.sinks))


def located(config: Config) -> Iterator[tuple[Place, SinkSettings, PurePath]]:
    """Every sink's directory as it is without symbolic links, where it is one that `written` does not refuse."""
    for place, sink in sinks(config):
        if sink.directory and not _deep(sink.directory):
            yield place, sink, PurePath(os.path.realpath(sink.directory))


def _deep(path: str) -> bool:
    return path.count("/") > DEEPEST_PATH


def apart(config: Config) -> Iterator[Finding]:
    """One writer for a directory, and nobody writes inside another's; the issuer's keys lie by themselves."""
    taken: dict[PurePath, Place] = {}
    inside: dict[PurePath, Place] = {}
    if config.issuer and config.issuer.state and not _deep(config.issuer.state):
        _take(PurePath(os.path.realpath(config.issuer.state)), ("issuer", "state"), taken, inside)
    for place, _, mine in located(config):
        around = next((taken[path] for path in mine.parents if path in taken), None)
        how, other = "the same directory as", taken.get(mine)
        if not other:
            how, other = ("inside", around) if around else ("around", inside.get(mine))
        if other:
            message = f"{how} another's: give each its own, side by side"
            yield Finding(place=(*place, "directory"), message=message, other=other, rests_on=(other,))
        _take(mine, (*place, "directory"), taken, inside)


def _take(path: PurePath, place: Place, taken: dict[PurePath, Place], inside: dict[PurePath, Place]) -> None:
    taken.setdefault(path, place)
    for parent in path.parents:
        inside.setdefault(parent, place)


def directories(config: Config) -> Iterator[Finding]:
    """A directory can be one, and is not part of what an atomic writer swaps."""
    for place, sink, around in located(config):
        within = {*PurePath(os.path.abspath(sink.directory)).parts, *around.parts}  # noqa: PTH100  # Path.absolute keeps `..`
        hidden = next((part for part in sorted(within) if part.startswith("..")), None)
        if hidden:
            message = f"below `{hidden}`, which an atomic writer replaces: choose a directory outside"
            yield Finding(place=(*place, "directory"), message=message)
        obstacle = next((path for path in (around, *around.parents) if os.path.lexists(path)), None)
        if obstacle and not os.path.isdir(obstacle):  # noqa: PTH112  # no error where it may not be looked at
            message = f"{obstacle} exists and is not a directory: choose another, or move it away"
            yield Finding(place=(*place, "directory"), message=message)


def written(config: Config) -> Iterator[Finding]:
    """No path is empty, and a mount path is a whole one."""
    paths: list[tuple[Place, str]] = [(("control", "socket"), config.control.socket)]
    if config.issuer:
        paths.append((("issuer", "state"), config.issuer.state))
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, FileSettings):
            paths.append((("identities", index, "source", "path"), identity.source.path))
    paths += [((*place, "directory"), sink.directory) for place, sink in sinks(config)]
    yield from (Finding(place=place, message="empty: write a path") for place, path in paths if not path)
    deep = f"too deep: at most {DEEPEST_PATH} directories one in another"
    yield from (Finding(place=place, message=deep) for place, path in paths if _deep(path))
    for place, sink in sinks(config):
        if sink.mount_path is not None and not sink.mount_path.startswith("/"):
            message = "has to be absolute, as the consumer mounts it, such as /var/run/identity"
            yield Finding(place=(*place, "mountPath"), message=message)


def circular(config: Config) -> Iterator[Finding]:
    """Nobody reads its token from where it writes it."""
    for index, identity in enumerate(config.identities):
        if not isinstance(identity.source, FileSettings) or not identity.source.path or _deep(identity.source.path):
            continue
        path = PurePath(os.path.abspath(identity.source.path))  # noqa: PTH100  # as above
        for position, sink in enumerate(identity.sinks):
            if sink.directory and path.is_relative_to(os.path.abspath(sink.directory)):  # noqa: PTH100  # as above
                place = ("identities", index, "source", "path")
                other: Place = ("identities", index, "sinks", position, "directory")
                message = "lies in this identity's own sink: read the token where somebody else writes it"
                yield Finding(place=place, message=message, other=other, rests_on=(other,))


def names(config: Config) -> Iterator[Finding]:
    """Renamed files have names that can be, each its own."""
    for place, sink in sinks(config):
        taken = {name: name for name in (*TAKEN, *(file for file in FILES if file not in sink.names))}
        for file, name in sink.names.items():
            here = (*place, "names", file)
            if file not in FILES:
                meant = nearest(file, FILES)
                hint = f", did you mean `{meant}`?" if meant else f": allowed are {', '.join(FILES)}"
                yield Finding(place=here, message=f"no file of that name is written{hint}")
            elif not name or "/" in name or name == "." or name.startswith("..") or len(os.fsencode(name)) > LONGEST_NAME:
                message = f"a plain file name belongs here: no `/`, no `..` at its beginning, at most {LONGEST_NAME} bytes"
                yield Finding(place=here, message=message)
            elif name in taken:
                yield Finding(place=here, message=f"{name!r} is already the name of {taken[name]}: choose another")
            else:
                taken[name] = file


def owners(config: Config) -> Iterator[Finding]:
    """Owner and group are known on this machine."""
    for place, sink in sinks(config):
        yield from _known(place, "owner", sink.owner, pwd.getpwnam)
        yield from _known(place, "group", sink.group, grp.getgrnam)


def modes(config: Config) -> Iterator[Finding]:
    """Only the agent writes."""
    for place, sink in sinks(config):
        if sink.mode.bits & 0o022:
            message = "lets others than the agent write the files: whoever does, decides who the workload is"
            yield Finding(place=(*place, "mode"), message=message, warning=True)


def exposed(config: Config) -> Iterator[Finding]:
    """A token that is good in many places is not for every user's eyes."""
    for index, identity in enumerate(config.identities):
        audiences = identity.provider.audiences
        if len(audiences) == 1 or (not audiences and not isinstance(identity.provider, GenericSettings)):
            continue
        good = f"each of its {len(audiences)} audiences" if audiences else "the API server, with all rights of the ServiceAccount"
        place: Place = ("identities", index, "provider", "audiences")
        for position, sink in enumerate(identity.sinks):
            if sink.mode.bits & 0o004:
                message = f"lets every user of the volume read a token that is good at {good}: use 0640, or one audience for each identity"
                here: Place = ("identities", index, "sinks", position, "mode")
                yield Finding(place=here, message=message, warning=True, other=place, rests_on=(place,))


def _known(place: Place, key: str, who: str | int | None, look_up: Callable[[str], object]) -> Iterator[Finding]:
    if isinstance(who, int) and not 0 <= who < (1 << 32) - 1:
        yield Finding(place=(*place, key), message="no such number can be: write one from 0 to 4294967294")
    elif isinstance(who, str):
        try:
            look_up(who)
        except (KeyError, ValueError):
            hint = "write the number without quotes" if who.isdigit() else "write its number, if it is known elsewhere only"
            yield Finding(place=(*place, key), message=f"this machine knows no such {key}: {hint}")


RULES = (apart, directories, written, circular, names, owners, modes, exposed)
