"""The verdict on an answer of the metadata endpoint, and on whether an agent sent it."""

from urllib.parse import urlsplit

from agent.dialects import DIALECTS
from agent.doctor.case import Case, broken, ok, skipped
from agent.doctor.endpoint_answers import summarise
from agent.doctor.endpoint_requests import Reply
from agent.doctor.report import Finding
from agent.refusals import REFUSAL_HEADER, Refusal

LINK = "endpoint"
CODES = frozenset(Refusal)


def judged(case: Case, dialect: str, reply: Reply, resource: str, *, refused: bool) -> Finding:
    """Return the verdict. `resource`: the one requested in Azure's dialects. `refused`: the agent cannot have a new credential."""
    url, status, reason = reply.url, reply.status, reply.reason
    if status == 200:
        return _given(case, dialect, reply, resource)
    if reply.refusal not in CODES:  # the body is not repeated: another program may echo the authorization in it
        return stranger(reply.url, f"answers {status} without the agent's {REFUSAL_HEADER} header")
    match reply.refusal:
        case Refusal.UNAUTHORIZED:
            configured = case.identity.serve.authorization
            where = "the value of the variable" if configured else "the content of the file"
            remedy = (
                "start both containers with the same value"
                if configured
                else "a running agent restores its own within seconds: check that it writes to this directory"
            )
            return broken(LINK, f"{url} answers 401: {where} is not the running agent's authorization", remedy)
        case Refusal.FORWARDED | Refusal.WRONG_HOST | Refusal.NOT_LOCAL:
            remedy = "send the request on the agent's machine, to an address of metadata.listen, without a proxy"
            return broken(LINK, f"{url} answers {status}: {reason}", remedy)
        case Refusal.TOO_MANY_WAITING | Refusal.SETTINGS_CHANGED:
            return broken(LINK, f"{url} answers {status}: {case.without_name(reason)}", "run the doctor again in a few seconds")
        case Refusal.NOT_READY if refused:
            return skipped(LINK, "the token and the exchange")
        case Refusal.NOT_READY:
            remedy = f"see the agent's line above; wi-agent renew {case.name} retries at once"
            text = (
                "the identity has no credential yet" if case.view.status else case.without_name(reason)
            )  # the agent's line has the reason
            return broken(LINK, f"{url} answers {status}: {text}", remedy)
        case _:
            return broken(LINK, f"{url} answers {status}: {reason}", _otherwise(case))


def stranger(url: str, does: str) -> Finding:
    """Return the finding for an answer of another program."""
    remedy = f"{whose(url)}. Stop it, or set another metadata.listen or serve.port; then restart the agent"
    return broken(LINK, f"{url} {does}: the program is not a wi-agent", remedy)


def whose(url: str) -> str:
    """Return the command that shows the listening program."""
    return f"ss -ltnp 'sport = :{urlsplit(url).port or 80}' shows the listening program"


def _given(case: Case, dialect: str, reply: Reply, resource: str) -> Finding:
    found = summarise(dialect, reply, resource, case.toolbox.clock.now())
    if found.lacking:
        return stranger(reply.url, f"answers 200 without the members that SDKs read ({', '.join(found.lacking)})")
    if found.until and found.until <= case.toolbox.clock.now():
        return stranger(reply.url, f"answers 200 with an expired credential ({found.text})")
    open_to = "" if DIALECTS[dialect].authorized else "; any process that reaches it gets a credential"
    return ok(LINK, f"{reply.url} answers 200: {found.text}{open_to}")


def _otherwise(case: Case) -> str:
    if case.view.status is None:
        return "another agent listens on this port: stop it, or set another metadata.listen"
    return "the running agent has another configuration: run wi-agent check, then send it SIGHUP; wi-agent status shows a refusal"
