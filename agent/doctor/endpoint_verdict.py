"""What an answer of the metadata endpoint says of the agent, and whether it is the agent's at all."""

from urllib.parse import urlsplit

from agent.dialects import DIALECTS
from agent.doctor.case import Case, broken, ok, skipped
from agent.doctor.endpoint_answers import brought
from agent.doctor.endpoint_requests import Reply
from agent.doctor.report import Finding

LINK = "endpoint"
NOTHING = "nothing to hand out yet"
OURS = {
    401: ("does not hold this identity's authorization",),
    403: ("forwarded requests are refused", "this is not the host that was asked for", "only this machine may ask"),
    404: ("no such identity is served here", "nothing is served here"),
    503: (NOTHING, "too many wait already", "its settings have just changed"),
}
"""What the agent says with which status. What says something else is another program, and not repeated: it may hold what was asked."""


def judged(case: Case, dialect: str, reply: Reply, resource: str, *, refused: bool) -> Finding:
    """`resource`: what Azure's dialects were asked for. `refused`: the agent cannot have been given anything lately."""
    url, status, reason = reply.url, reply.status, reply.reason
    if status == 200:
        return _given(case, dialect, reply, resource)
    if status == 400 and "provider.resources" in reason:
        return broken(LINK, f"{url} answers 400: {reason}", _otherwise(case))
    if not any(text in reason for text in OURS.get(status, ())):
        return stranger(reply.url, f"answers {status}, and not in the agent's words")
    match status:
        case 401:
            configured = case.identity.serve.authorization
            where = "the value of the variable" if configured else "what lies in the file"
            remedy = (
                "start both containers with the same value"
                if configured
                else "a running agent puts its own back within seconds: see whether this directory is the one it writes to"
            )
            return broken(LINK, f"{url} answers 401: {where} is not the running agent's authorization", remedy)
        case 403:
            remedy = "ask from beside the agent, by one of metadata.listen's addresses, without a proxy"
            return broken(LINK, f"{url} answers 403: {reason}", remedy)
        case 404:
            return broken(LINK, f"{url} answers 404: {reason}", _otherwise(case))
        case _ if NOTHING not in reason:
            return broken(LINK, f"{url} answers 503: {case.own(reason)}", "ask again in a moment")
        case _ if refused:
            return skipped(LINK, "the token and the exchange")
        case _:
            remedy = f"see the agent's line above; wi-agent renew {case.name} tries again at once"
            text = NOTHING if case.view.status else case.own(reason)  # the agent's line has the reason
            return broken(LINK, f"{url} answers 503: {text}", remedy)


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
