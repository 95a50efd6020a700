"""The sinks' link: the files in an identity's directories, as a reader finds them. Nothing is locked or repaired."""

import asyncio
import grp
import os
import pwd
import stat
from datetime import datetime
from pathlib import Path

from agent.config import fingerprints
from agent.config.model import identity_digest, named_files
from agent.doctor.case import REQUEST_TIMEOUT_SECONDS, Case, broken, ok, skipped, tag, warning
from agent.doctor.report import Finding
from agent.identities.profiles import FILE_AT
from agent.offload import in_thread
from agent.schedule import Policy, Span, State, state_of
from agent.sinks import SinkSettings
from agent.sinks.files import acl, atomic_writer
from agent.sinks.files.generation import Unusable, inspect
from agent.sinks.files.manifest import NAME, Manifest

LINK = "sinks"
REPLACE = "A running agent makes its own directory within seconds. Mount the volume readOnly in every other container"
RESTORED = "a running agent with this configuration replaces it within seconds: check that one runs"
LATE = {State.STALE: "is past its refresh time and was not replaced", State.EXPIRED: "has expired", State.MISSING: "is missing"}


async def look(case: Case, *, refused: bool) -> list[Finding]:
    """Return a finding for each sink. `refused`: the agent cannot have delivered anything lately, so an empty directory is not reported."""
    found = []
    for sink in case.identity.sinks:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                found.append(await in_thread(f"look {case.name}", lambda sink=sink: _directory(case, sink, refused=refused)))  # type: ignore[misc]  # the loop's own sink
        except TimeoutError:
            found.append(
                broken(LINK, f"{sink.directory}: the disk did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", "check the volume")
            )
    return found


def _directory(case: Case, sink: SinkSettings, *, refused: bool) -> Finding:
    where = sink.directory
    if os.path.islink(where):  # noqa: PTH114  # False instead of PermissionError
        return broken(
            LINK, f"{where} is a symbolic link: readers follow it, and the agent does not write there", f"remove the link. {REPLACE}"
        )
    try:
        root = os.open(where, atomic_writer.DIRECTORY_FLAGS)
    except FileNotFoundError:
        return _nothing(f"{where}: the directory does not exist", refused=refused)
    except PermissionError:
        return broken(LINK, f"{where}: uid {os.geteuid()} may not enter it", "run the doctor as the agent's user")
    except OSError as error:
        return broken(LINK, f"{where}: {error.strerror}", "set sinks[].directory to a directory")
    try:
        if foreign := _foreign_owner(case, sink, root):
            return broken(LINK, f"{where} {foreign}: clients read what that user puts there", f"remove the directory. {REPLACE}")
        name = atomic_writer.live(root)
        return (
            _generation(case, sink, root, name, refused=refused)
            if name
            else _nothing(f"{where}: the agent has delivered nothing there", refused=refused)
        )
    finally:
        os.close(root)


def _foreign_owner(case: Case, sink: SinkSettings, root: int) -> str:
    """Return which other user owns the directory; empty if the agent or root does, or if the agent's user is not known."""
    try:
        agent = os.lstat(case.config.control.socket).st_uid
    except OSError:
        return ""
    found = os.fstat(root).st_uid
    return "" if found in {0, agent, _uid(sink.owner)} else f"belongs to uid {found}, and the agent is uid {agent}"


def _nothing(text: str, *, refused: bool) -> Finding:
    if refused:
        return skipped(LINK, "the token and the exchange")
    return broken(LINK, text, "start the agent; if it runs, see the agent's line above. Relative paths start at its working directory")


def _generation(case: Case, sink: SinkSettings, root: int, name: str, *, refused: bool) -> Finding:
    where, manifest_name = sink.directory, sink.names.get(NAME, NAME)
    digest = identity_digest(case.identity, case.config, case.uid, fingerprints.read(named_files(case.identity)))
    try:
        owner, me = os.stat(name, dir_fd=root).st_uid, os.geteuid()
        found = inspect(root, name, identity=case.name, digest=digest, manifest=manifest_name, uid=owner if me == 0 else me)
    except FileNotFoundError:
        return broken(LINK, f"{where}: the link ..data points to a missing directory", RESTORED)
    except Unusable as why:
        if me not in {0, owner}:
            return broken(
                LINK, f"{where}: it belongs to uid {owner}, and the doctor is uid {me}", "run the doctor as the agent's user, or as root"
            )
        if refused and why.other_settings:
            return warning(LINK, f"{where}: {why.reason}; the earlier files stay until the links above work again")
        return broken(LINK, f"{where}: {why.reason}", RESTORED)
    except PermissionError:
        return broken(LINK, f"{where}: uid {os.geteuid()} may not read it", "run the doctor as the agent's user")
    missing = [file for file in found.contents if not Path(where, file).is_file()]
    if missing:
        return broken(
            LINK, f"{where}: readers find no {', '.join(missing)}: the links are missing", "a running agent restores them within seconds"
        )
    now = case.toolbox.clock.now()
    late = {what: state for what, state in _states(case, found.manifest, now).items() if state is not State.FRESH}
    for what, state in late.items():
        return broken(LINK, f"{where}: the {what} {LATE[state]}", "see the links above for the reason; the agent's log has its attempts")
    if lists := _acls(root, name):
        remedy = "a running agent removes it within seconds: check that one runs. For a default ACL above it: docs/files.md"
        return warning(LINK, f"{where}: {lists}, so other users than mode, owner and group say may have access", remedy)
    if drift := _drift(sink, root, name):
        return warning(LINK, f"{where}: {drift}", "a running agent repairs it; if it does not, check sinks[].mode and sinks[].group")
    seen = os.stat(f"{name}/{min(found.contents)}", dir_fd=root)
    reach = f"mode {stat.S_IMODE(seen.st_mode):04o}, uid {seen.st_uid}, group {seen.st_gid}"
    mounted = f", which the workload mounts at {sink.mount_path}" if sink.mount_path else ""
    return ok(LINK, f"{where}{mounted}: {', '.join(sorted(found.contents))}; {reach}")


def _states(case: Case, manifest: Manifest, now: datetime) -> dict[str, State]:
    """Return the state of token and credential, each by its own times."""
    own = case.identity.refresh.at
    at = case.config.refresh.at if own is None else own
    states = {}
    for what, times in (("token", manifest.token), ("credential", manifest.credential)):
        if times.iat and times.exp:
            renewed = max(at, FILE_AT) if what == "token" and tag(case.identity.source) == "file" else at
            states[what] = state_of(Span(times.iat, times.exp), Policy(at=renewed, jitter=0.0), now)
    return states


def _drift(sink: SinkSettings, root: int, name: str) -> str:
    """Return how the files differ from the configuration; empty if they do not."""
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


def _acls(root: int, name: str) -> str:
    """Return which file or directory has a POSIX ACL; empty if none has."""
    directory = os.open(name, atomic_writer.DIRECTORY_FLAGS, dir_fd=root)
    try:
        if acl.present(root) or acl.present(directory):
            return "the directory has a POSIX ACL"
        for file in sorted(os.listdir(directory)):  # noqa: PTH208  # by descriptor
            if acl.present(acl.by_path_descriptor(directory) / file):
                return f"{file} has a POSIX ACL"
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
