"""The metadata endpoint, asked as an SDK asks it: with the authorization that the workload would read."""

import asyncio
from pathlib import Path

from agent import providers
from agent.authorization import FILE
from agent.dialects import DIALECTS
from agent.disk.retained import LONGEST
from agent.doctor.asking import ASKED, Asker, Reply
from agent.doctor.case import PATIENCE, Case, broken, ok, skipped, warning
from agent.doctor.report import Finding, Verdict
from agent.facts import facts
from agent.model import Secret
from agent.offload import in_thread
from agent.reading.rules.identities import authorization
from agent.spots import spot

LINK = "endpoint"
WEAKER = ("AWS_CONTAINER_", "AWS_EC2_")
"""Ways to the endpoint themselves."""


class _Unknown(Exception):  # noqa: N818  # a finding
    """Why the authorization is not known, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


async def look(case: Case, *, refused: bool) -> list[Finding]:
    """What the endpoint answers in each dialect, and what in this environment would keep an SDK from asking it at all."""
    identity = case.identity
    if not identity.serve.dialects:
        return [Finding(LINK, Verdict.UNUSED, "not served: serve.dialects is empty")]
    if not case.base:
        return [broken(LINK, "it listens on no TCP address, and SDKs use no socket files", "add one to metadata.listen")]
    findings = []
    for dialect in identity.serve.dialects:
        if dialect in ASKED:
            findings.append(await _look(case, dialect, refused=refused))
        else:
            findings.append(Finding(LINK, Verdict.UNUSED, f"served as {dialect}, which is not looked at here"))
    variables = providers.served(identity.provider, case.name, spot(case.config, identity, identity.serve.dialects[0]))
    stronger = [name for name in variables.unset if case.environ.get(name) and not name.startswith(WEAKER)] if variables else []
    if stronger:
        remedy = f'eval "$(wi-agent env {case.name})" clears them'
        remedy += "; in EKS remove the annotation eks.amazonaws.com/role-arn" if "AWS_ROLE_ARN" in stronger else ""
        findings.append(warning(LINK, f"{', '.join(stronger)} set here: SDKs prefer that to the endpoint", remedy))
    return findings


async def _look(case: Case, dialect: str, *, refused: bool) -> Finding:
    presented = None
    if DIALECTS[dialect].authorized:
        try:
            async with asyncio.timeout(PATIENCE):
                presented = await in_thread(f"look {case.name}", lambda: _authorization(case))
        except TimeoutError:
            return broken(LINK, f"the authorization's disk did not answer within {PATIENCE:.0f} s", "look at the volume")
        except _Unknown as why:
            return skipped(LINK, "the agent") if case.view.status is None else broken(LINK, why.reason, why.remedy)
    return await _ask(case, dialect, presented, refused=refused)


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
                text = file.read(LONGEST + 1).decode("ascii")
        except FileNotFoundError:
            raise _Unknown(
                f"there is no {path} for clients to present",
                "a running agent puts it back within seconds: see whether one runs, and in this directory",
            ) from None
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise _Unknown(f"{path} cannot be read: {error.strerror}", "run the doctor as the agent's or the workload's user") from None
        if not 0 < len(text) <= LONGEST or not text.isprintable():
            raise _Unknown(f"{path} holds no authorization", "remove it and restart the agent, which makes another")
        return Secret(text)
    raise _Unknown(
        "the authorization lies in no file and no variable", "add a sink of type files, or set serve.authorization: ${WI_AUTHORIZATION}"
    )


async def _ask(case: Case, dialect: str, presented: Secret | None, *, refused: bool) -> Finding:
    import aiohttp  # noqa: PLC0415  # loaded by the session anyway

    where = spot(case.config, case.identity, dialect)
    asker = Asker(await case.toolbox.http(), case.name, presented, facts(case.identity))
    try:
        reply = await ASKED[dialect](asker, where)
    except TimeoutError:
        return broken(LINK, f"{asker.url} did not answer within {PATIENCE:.0f} s", "see whether the agent runs and is not starved of CPU")
    except (aiohttp.ClientError, OSError):
        if case.view.status is None:
            return skipped(LINK, "the agent")
        return broken(
            LINK, f"nothing answers on {asker.url}", "the running agent listens elsewhere: it reads metadata.listen at its start only"
        )
    return _judged(case, reply, authorized=DIALECTS[dialect].authorized, refused=refused)


def _judged(case: Case, reply: Reply, *, authorized: bool, refused: bool) -> Finding:
    """What a status means; of a good answer only its expiry is looked at."""
    url, status, reason = reply.url, reply.status, reply.reason
    match status:
        case 200 if reply.brings:
            return ok(LINK, f"{url} answers 200: {reply.brings}")
        case 401 if authorized:
            where = "the value of the variable" if case.identity.serve.authorization else "what lies in the file"
            remedy = (
                "start both containers with the same value"
                if case.identity.serve.authorization
                else "a running agent puts its own back within seconds: see whether this directory is the one it writes to"
            )
            return broken(LINK, f"{url} answers 401: {where} is not the running agent's authorization", remedy)
        case 403:
            return broken(
                LINK, f"{url} answers 403: {reason}", "ask from beside the agent, by one of metadata.listen's addresses, without a proxy"
            )
        case 404:
            return broken(
                LINK, f"{url} answers 404: {reason}", "the running agent has another configuration: send it SIGHUP, and look in its log"
            )
        case 503 if refused:
            return skipped(LINK, "the token and the exchange")
        case 503:
            return broken(LINK, f"{url} answers 503: {reason}", "see the agent's line above; wi-agent renew tries again at once")
        case _:
            return broken(
                LINK, f"{url} answers {status}, which the agent would not", "free the port for the agent, or set another metadata.listen"
            )
