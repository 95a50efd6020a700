"""The metadata endpoint, asked as an SDK asks it: with the authorization that the workload would read."""

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
    """Why the authorization is not known, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


async def look(case: Case, *, refused: bool) -> list[Finding]:
    """What the endpoint answers in each dialect, and what in this environment would keep an SDK from asking it at all."""
    dialects = case.identity.serve.dialects
    if not dialects:
        return [Finding(LINK, Verdict.UNUSED, "not served: serve.dialects is empty")]
    if not case.base:
        return [broken(LINK, "it listens on no TCP address, and SDKs use no socket files", "add one to metadata.listen")]
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
            return [broken(LINK, f"the authorization's disk did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", "look at the volume")]
        except _Unknown as why:
            return [skipped(LINK, "the agent") if case.view.status is None else broken(LINK, why.reason, why.remedy)]
    found = await _ask(case, where, presented, refused=refused)
    if found.verdict is Verdict.OK and not endpoint_addresses.wired(where):
        text = f"SDKs ask {endpoint_addresses.ALIBABAS} and nothing else, and the agent does not listen there"
        return [found, warning(LINK, text, f'add "{endpoint_addresses.ALIBABAS}" to metadata.listen, and restart the agent')]
    return [found]


def _authorization(case: Case) -> Secret:
    """What a client has to present: from the environment, or from the file that the agent keeps. Raises _Unknown."""
    serve = case.identity.serve
    if serve.authorization:
        try:
            return Secret(authorization(serve.authorization, case.environ))
        except ValueError as error:
            raise _Unknown(f"serve.authorization: {error}", "set the variable as the agent's container has it") from None
    for sink in case.identity.sinks:
        path = Path(sink.directory) / sink.names.get(FILE, FILE)
        try:
            with path.open("rb") as file:
                text = file.read(MAX_SECRET_BYTES + 1).decode("ascii")
        except FileNotFoundError:
            raise _Unknown(
                f"there is no {path} for clients to present",
                "a running agent puts it back within seconds: see whether one runs, and in this directory",
            ) from None
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise _Unknown(f"{path} cannot be read: {error.strerror}", "run the doctor as the agent's or the workload's user") from None
        if not 0 < len(text) <= MAX_SECRET_BYTES or not text.isprintable():
            raise _Unknown(f"{path} holds no authorization", "remove it and restart the agent, which makes another")
        return Secret(text)
    raise _Unknown(
        "the authorization lies in no file and no variable", "add a sink of type files, or set serve.authorization: ${WI_AUTHORIZATION}"
    )


async def _ask(case: Case, where: ServedAt, presented: Secret | None, *, refused: bool) -> Finding:
    """Once rightly; where that brings a credential, once wrongly too: then it has to bring none."""
    import aiohttp  # noqa: PLC0415  # loaded by the session anyway

    session, known = await case.toolbox.http(), facts(case.identity)
    asker, ask = Asker(session, case.name, presented, known), ASKED[where.dialect]
    wrongly = Asker(session, case.name, WRONG, known) if presented else Asker(session, case.name, None, known, more=FORWARDED)
    try:
        found = judged(case, where.dialect, await ask(asker, where), asker.resource, refused=refused)
        return found if found.verdict is not Verdict.OK else _guarded(found, await ask(wrongly, where), authorized=presented is not None)
    except TimeoutError:
        remedy = f"{whose(asker.url)}: restart an agent that was stopped or is starved of CPU; stop what is none"
        return broken(LINK, f"{asker.url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", remedy)
    except aiohttp.ClientConnectorError:
        if case.view.status is None:
            return skipped(LINK, "the agent")
        remedy = "restart the agent, if metadata.listen was changed since; else ask in its network: kubectl exec POD -c CONTAINER"
        return broken(LINK, f"nothing answers on {asker.url}", remedy)
    except (aiohttp.ClientError, OSError):
        return stranger(asker.url, "does not speak HTTP to the end")


def _guarded(found: Finding, reply: Reply, *, authorized: bool) -> Finding:
    """What was found, unless what must be refused is not."""
    if reply.status != 200:
        return found
    return stranger(reply.url, f"answers 200 to {'a wrong authorization' if authorized else 'what a proxy has forwarded'}, too")
