"""What lies in an identity's directories, as a reader finds it: looked at without lock and without mending anything."""

import asyncio
import grp
import os
import pwd
import stat
from datetime import datetime
from pathlib import Path

from agent.config import fingerprints
from agent.config.model import identity_digest, named_files
from agent.doctor.case import PATIENCE, Case, broken, ok, skipped, tag, warning
from agent.doctor.report import Finding
from agent.offload import in_thread
from agent.schedule import Policy, Span, State, state_of
from agent.sinks import SinkSettings
from agent.sinks.files import atomic_writer
from agent.sinks.files.generation import Unusable, inspect
from agent.sinks.files.manifest import NAME, Manifest

LINK = "sinks"
LATE = 0.9
"""Share of a lifetime after which a file that somebody else renews counts as due."""
ELSEWHERE = "A running agent makes its own within seconds; mount the volume readOnly in every other container"
OLD = {State.STALE: "is past its time and was not replaced", State.EXPIRED: "has expired", State.MISSING: "is missing"}


async def look(case: Case, *, refused: bool) -> list[Finding]:
    """A line for each sink. `refused`: nothing can have been delivered lately, so an empty place is no finding of its own."""
    found = []
    for sink in case.identity.sinks:
        try:
            async with asyncio.timeout(PATIENCE):
                found.append(await in_thread(f"look {case.name}", lambda sink=sink: _place(case, sink, refused=refused)))  # type: ignore[misc]  # the loop's own sink
        except TimeoutError:
            found.append(broken(LINK, f"{sink.directory}: the disk did not answer within {PATIENCE:.0f} s", "look at the volume"))
    return found


def _place(case: Case, sink: SinkSettings, *, refused: bool) -> Finding:
    where = sink.directory
    if os.path.islink(where):  # noqa: PTH114  # False, and no PermissionError, where nobody may look
        return broken(
            LINK, f"{where} is a symbolic link: readers follow it, and the agent does not write there", f"remove the link. {ELSEWHERE}"
        )
    try:
        root = os.open(where, atomic_writer.DIRECTORY_FLAGS)
    except FileNotFoundError:
        return _nothing(f"{where}: there is no such directory", refused=refused)
    except PermissionError:
        return broken(LINK, f"{where}: uid {os.geteuid()} may not enter it", "run the doctor as the agent's user")
    except OSError as error:
        return broken(LINK, f"{where}: {error.strerror}", "name a directory in sinks[].directory")
    try:
        if stranger := _stranger(case, sink, root):
            return broken(LINK, f"{where} {stranger}: clients read what that user puts there", f"remove the directory. {ELSEWHERE}")
        name = atomic_writer.live(root)
        return (
            _generation(case, sink, root, name, refused=refused)
            if name
            else _nothing(f"{where}: nothing was delivered there", refused=refused)
        )
    finally:
        os.close(root)


def _stranger(case: Case, sink: SinkSettings, root: int) -> str:
    """Whose directory it is instead of the agent's; empty where it is the agent's, root's, or where nobody can tell who the agent is."""
    try:
        agent = os.lstat(case.config.control.socket).st_uid
    except OSError:
        return ""
    found = os.fstat(root).st_uid
    return "" if found in {0, agent, _uid(sink.owner)} else f"belongs to uid {found}, and the agent is uid {agent}"


def _nothing(text: str, *, refused: bool) -> Finding:
    if refused:
        return skipped(LINK, "the token and the exchange")
    return broken(LINK, text, "start the agent; if it runs, see the agent's line above. Relative paths count from its working directory")


def _generation(case: Case, sink: SinkSettings, root: int, name: str, *, refused: bool) -> Finding:
    where, manifest_name = sink.directory, sink.names.get(NAME, NAME)
    digest = identity_digest(case.identity, case.config, case.uid, fingerprints.read(named_files(case.identity)))
    try:
        owner, me = os.stat(name, dir_fd=root).st_uid, os.geteuid()
        found = inspect(root, name, identity=case.name, digest=digest, manifest=manifest_name, uid=owner if me == 0 else me)
    except FileNotFoundError:
        return broken(LINK, f"{where}: ..data points to nothing", "a running agent on this configuration replaces it within seconds")
    except Unusable as why:
        if me not in {0, owner}:
            return broken(
                LINK, f"{where}: it is uid {owner}'s, and the doctor is uid {me}", "run the doctor as the agent's user, or as root"
            )
        if refused and why.other_settings:
            return warning(LINK, f"{where}: {why.reason}; what was delivered before stays until the links above hold again")
        return broken(
            LINK, f"{where}: {why.reason}", "a running agent on this configuration replaces it within seconds: see whether one does"
        )
    except PermissionError:
        return broken(LINK, f"{where}: uid {os.geteuid()} may not read it", "run the doctor as the agent's user")
    missing = [file for file in found.contents if not Path(where, file).is_file()]
    if missing:
        return broken(
            LINK, f"{where}: no {', '.join(missing)} for readers: the links are gone", "a running agent puts them back within seconds"
        )
    now = case.toolbox.clock.now()
    late = {what: state for what, state in _states(case, found.manifest, now).items() if state is not State.FRESH}
    for what, state in late.items():
        return broken(LINK, f"{where}: the {what} {OLD[state]}", "see the links above for why; the agent's log says when it tried")
    if drift := _drift(sink, root, name):
        return warning(LINK, f"{where}: {drift}", "a running agent mends it; if it does not, see sinks[].mode and sinks[].group")
    seen = os.stat(f"{name}/{min(found.contents)}", dir_fd=root)
    reach = f"mode {stat.S_IMODE(seen.st_mode):04o}, uid {seen.st_uid}, group {seen.st_gid}"
    mounted = f", which the workload mounts at {sink.mount_path}" if sink.mount_path else ""
    return ok(LINK, f"{where}{mounted}: {', '.join(sorted(found.contents))}; {reach}")


def _states(case: Case, manifest: Manifest, now: datetime) -> dict[str, State]:
    """Of token and credential, by the clock that each has."""
    own = case.identity.refresh.at
    at = case.config.refresh.at if own is None else own
    states = {}
    for what, times in (("token", manifest.token), ("credential", manifest.credential)):
        if times.iat and times.exp:
            renewed = max(at, LATE) if what == "token" and tag(case.identity.source) == "file" else at
            states[what] = state_of(Span(times.iat, times.exp), Policy(at=renewed, jitter=0.0), now)
    return states


def _drift(sink: SinkSettings, root: int, name: str) -> str:
    """How files differ from what is configured; empty where they do not."""
    wanted = _gid(sink.group)
    directory = os.open(name, atomic_writer.DIRECTORY_FLAGS, dir_fd=root)
    try:
        for file in sorted(os.listdir(directory)):  # noqa: PTH208  # by descriptor
            seen = os.stat(file, dir_fd=directory, follow_symlinks=False)
            if stat.S_IMODE(seen.st_mode) != sink.mode.bits:
                return f"{file} has the mode {stat.S_IMODE(seen.st_mode):04o}, not {sink.mode}"
            if wanted not in {None, seen.st_gid}:
                return f"{file} has the group {seen.st_gid}, not {sink.group}"
    finally:
        os.close(directory)
    return ""


def _uid(owner: str | int | None) -> int | None:
    try:
        return pwd.getpwnam(owner).pw_uid if isinstance(owner, str) else owner
    except KeyError:
        return None


def _gid(group: str | int | None) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid if isinstance(group, str) else group
    except KeyError:
        return None
