"""The endpoint's link: requests as an SDK sends them, with the authorization that the workload would read."""

import asyncio
from pathlib import Path

from agent.config.authorization import authorization
from agent.dialects import DIALECTS
from agent.doctor import endpoint_addresses, endpoint_environment
from agent.doctor.case import REQUEST_TIMEOUT_SECONDS, Case, broken, skipped, warning
from agent.doctor.endpoint_requests import ASKED, FORWARDED, WRONG, Asker, Reply
from agent.doctor.endpoint_verdict import LINK, judged, stranger, whose
from agent.doctor.report import Finding, Verdict
from agent.envvars import ServedAt
from agent.identities.authorization import FILE
from agent.identities.profiles import facts
from agent.model import Secret
from agent.offload import in_thread
from agent.sinks.files.secret_file import MAX_SECRET_BYTES


class _Unknown(Exception):  # noqa: N818  # a finding
    """The reason why the doctor cannot read the authorization, and a remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


async def look(case: Case, *, refused: bool) -> list[Finding]:
    """Check the endpoint's answer in each dialect, and what in this environment keeps an SDK from using the endpoint."""
    dialects = case.identity.serve.dialects
    if not dialects:
        return [Finding(LINK, Verdict.UNUSED, "not served: serve.dialects is empty")]
    if not case.base:
        return [broken(LINK, "it has no TCP address, and SDKs cannot use a socket file", "add a TCP address to metadata.listen")]
    missing = endpoint_addresses.missing(case)
    findings = list(missing.values())
    for dialect in dialects:
        where, host = endpoint_addresses.asked(case.config, case.identity, dialect)
        if host not in missing:
            findings += await _look(case, where, refused=refused)
    return [*findings, *endpoint_environment.look(case)]


async def _look(case: Case, where: ServedAt, *, refused: bool) -> list[Finding]:
    presented = None
    if DIALECTS[where.dialect].authorized:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                presented = await in_thread(f"look {case.name}", lambda: _authorization(case))
        except TimeoutError:
            return [
                broken(LINK, f"the disk with the authorization did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", "check the volume")
            ]
        except _Unknown as why:
            return [skipped(LINK, "the agent") if case.view.status is None else broken(LINK, why.reason, why.remedy)]
    found = await _ask(case, where, presented, refused=refused)
    if found.verdict is Verdict.OK and not endpoint_addresses.wired(where):
        text = f"SDKs use {endpoint_addresses.ALIBABAS} and no other address, and the agent does not listen there"
        return [found, warning(LINK, text, f'add "{endpoint_addresses.ALIBABAS}" to metadata.listen, and restart the agent')]
    return [found]


def _authorization(case: Case) -> Secret:
    """Return the authorization that a client sends: from the environment, or from the agent's file. Raise _Unknown."""
    serve = case.identity.serve
    if serve.authorization:
        try:
            return Secret(authorization(serve.authorization, case.environ))
        except ValueError as error:
            raise _Unknown(f"serve.authorization: {error}", "set the variable to its value in the agent's container") from None
    for sink in case.identity.sinks:
        path = Path(sink.directory) / sink.names.get(FILE, FILE)
        try:
            with path.open("rb") as file:
                text = file.read(MAX_SECRET_BYTES + 1).decode("ascii")
        except FileNotFoundError:
            raise _Unknown(
                f"the file {path}, whose content clients send, does not exist",
                "a running agent restores it within seconds: check that one runs, and that it writes to this directory",
            ) from None
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise _Unknown(f"cannot read {path}: {error.strerror}", "run the doctor as the agent's or the workload's user") from None
        if not 0 < len(text) <= MAX_SECRET_BYTES or not text.isprintable():
            raise _Unknown(f"{path} does not hold an authorization", "remove it and restart the agent, which writes a new one")
        return Secret(text)
    raise _Unknown(
        "the authorization is stored in neither a file nor a variable",
        "add a sink of type files, or set serve.authorization: ${WI_AUTHORIZATION}",
    )


async def _ask(case: Case, where: ServedAt, presented: Secret | None, *, refused: bool) -> Finding:
    """Ask with the authorization. If that returns a credential, ask with a wrong one too, which must return none."""
    import aiohttp  # noqa: PLC0415  # loaded by the session anyway

    session, known = await case.toolbox.http(), facts(case.identity)
    asker, ask = Asker(session, case.name, presented, known), ASKED[where.dialect]
    wrongly = Asker(session, case.name, WRONG, known) if presented else Asker(session, case.name, None, known, more=FORWARDED)
    try:
        found = judged(case, where.dialect, await ask(asker, where), asker.resource, refused=refused)
        return found if found.verdict is not Verdict.OK else _guarded(found, await ask(wrongly, where), authorized=presented is not None)
    except TimeoutError:
        remedy = f"{whose(asker.url)}. If it is an agent, restart it or give it more CPU. If it is another program, stop it"
        return broken(LINK, f"{asker.url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", remedy)
    except aiohttp.ClientConnectorError:
        if case.view.status is None:
            return skipped(LINK, "the agent")
        remedy = "restart the agent if metadata.listen was changed since; else run the doctor in its network: kubectl exec POD -c CONTAINER"
        return broken(LINK, f"no program answers on {asker.url}", remedy)
    except (aiohttp.ClientError, OSError):
        return stranger(asker.url, "does not complete an HTTP response")


def _guarded(found: Finding, reply: Reply, *, authorized: bool) -> Finding:
    """Return the finding, unless the endpoint answered a request that it must refuse."""
    if reply.status != 200:
        return found
    return stranger(reply.url, f"answers 200 to {'a wrong authorization' if authorized else 'a request that a proxy has forwarded'}, too")
