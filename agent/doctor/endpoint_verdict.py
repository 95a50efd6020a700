"""What an answer of the metadata endpoint says of the agent, and whether it is the agent's at all."""

from urllib.parse import urlsplit

from agent.dialects import DIALECTS
from agent.doctor.case import Case, broken, ok, skipped
from agent.doctor.endpoint_answers import brought
from agent.doctor.endpoint_requests import Reply
from agent.doctor.report import Finding
from agent.refusals import REFUSAL_HEADER, Refusal

LINK = "endpoint"
CODES = frozenset(Refusal)


def judged(case: Case, dialect: str, reply: Reply, resource: str, *, refused: bool) -> Finding:
    """`resource`: what Azure's dialects were asked for. `refused`: the agent cannot have been given anything lately."""
    url, status, reason = reply.url, reply.status, reply.reason
    if status == 200:
        return _given(case, dialect, reply, resource)
    if reply.refusal not in CODES:  # the body is not repeated: another program may echo the authorization in it
        return stranger(reply.url, f"answers {status} without the agent's {REFUSAL_HEADER} header")
    match reply.refusal:
        case Refusal.UNAUTHORIZED:
            configured = case.identity.serve.authorization
            where = "the value of the variable" if configured else "what lies in the file"
            remedy = (
                "start both containers with the same value"
                if configured
                else "a running agent puts its own back within seconds: see whether this directory is the one it writes to"
            )
            return broken(LINK, f"{url} answers 401: {where} is not the running agent's authorization", remedy)
        case Refusal.FORWARDED | Refusal.WRONG_HOST | Refusal.NOT_LOCAL:
            remedy = "ask from beside the agent, by one of metadata.listen's addresses, without a proxy"
            return broken(LINK, f"{url} answers {status}: {reason}", remedy)
        case Refusal.TOO_MANY_WAITING | Refusal.SETTINGS_CHANGED:
            return broken(LINK, f"{url} answers {status}: {case.without_name(reason)}", "ask again in a moment")
        case Refusal.NOT_READY if refused:
            return skipped(LINK, "the token and the exchange")
        case Refusal.NOT_READY:
            remedy = f"see the agent's line above; wi-agent renew {case.name} tries again at once"
            text = "nothing to hand out yet" if case.view.status else case.without_name(reason)  # the agent's line has the reason
            return broken(LINK, f"{url} answers {status}: {text}", remedy)
        case _:
            return broken(LINK, f"{url} answers {status}: {reason}", _otherwise(case))


def stranger(url: str, does: str) -> Finding:
    """Something else has the port."""
    remedy = f"{whose(url)}: stop it, or set another metadata.listen or serve.port; then restart the agent"
    return broken(LINK, f"{url} {does}: that is no wi-agent", remedy)


def whose(url: str) -> str:
    """What tells which program listens there."""
    return f"ss -ltnp 'sport = :{urlsplit(url).port or 80}' says who listens there"


def _given(case: Case, dialect: str, reply: Reply, resource: str) -> Finding:
    found = brought(dialect, reply, resource, case.toolbox.clock.now())
    if found.lacking:
        return stranger(reply.url, f"answers 200 without what SDKs look for ({', '.join(found.lacking)})")
    if found.until and found.until <= case.toolbox.clock.now():
        return stranger(reply.url, f"answers 200 with what has expired ({found.text})")
    open_to = "" if DIALECTS[dialect].authorized else "; every process that reaches it may ask"
    return ok(LINK, f"{reply.url} answers 200: {found.text}{open_to}")


def _otherwise(case: Case) -> str:
    if case.view.status is None:
        return "another agent has this port: stop it, or set another metadata.listen"
    return "the running agent has another configuration: wi-agent check, then send it SIGHUP; wi-agent status says if it was refused"
