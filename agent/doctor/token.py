"""The token's link: its audience, its times, and the claims that every cloud requires."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agent import providers
from agent.claims import read_token
from agent.doctor.case import REQUEST_TIMEOUT_SECONDS, Case, broken, ok, warning
from agent.doctor.report import Finding
from agent.errors import RefreshError
from agent.model import IdentityToken
from agent.offload import in_thread
from agent.rotation.exchanger import LEAST_LEFT

LINK = "token"
MAX_AHEAD_SECONDS = 5.0
"""A token issued further in the future than this means that a clock is wrong."""


def look(case: Case) -> list[Finding]:
    """Check the claims of the case's token; nothing if there is no token."""
    found, now = case.token, case.toolbox.clock.now()
    if found is None:
        return []
    required = providers.build(case.identity.provider, case.name, case.toolbox).audiences
    if required and not set(required) & set(found.audiences):
        text = f"its audience is {_listed(found.audiences)}, and the provider requires {_listed(required)}"
        return [broken(LINK, text, "project the token with that audience, or set provider.audiences")]
    ahead = (found.issued_at - now).total_seconds()
    if ahead > MAX_AHEAD_SECONDS:
        text = f"it was issued {ahead:.0f} s in the future: this machine's clock is behind its issuer's by that much or more"
        return [broken(LINK, text, "set this machine's clock: systemctl status systemd-timesyncd, or chronyc tracking")]
    if missing := [name for name, value in (("iss", found.issuer), ("sub", found.subject)) if not value]:
        text = f"it has no {' and no '.join(missing)}, which every cloud requires"
        return [broken(LINK, text, "give the identity a source whose tokens have both")]
    left = (found.expires_at - now).total_seconds()
    text = f"sub {found.subject}, aud {_listed(found.audiences)}, iss {found.issuer}; {left:.0f} s left"
    if left < LEAST_LEFT and not case.uses_own_issuer:
        remedy = f"see why the program that writes the file renews it so late: an exchange needs {LEAST_LEFT:.0f} s"
        return [warning(LINK, text, remedy)]
    return [ok(LINK, text)]


async def delivered(case: Case) -> IdentityToken | None:
    """Return a valid token from a sink, for a source that yields none: the doctor's user may not be allowed to read the issuer's keys."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            return await in_thread(f"look {case.name}", lambda: _read(case))
    except TimeoutError:
        return None  # the sinks' link reports the timeout


def _read(case: Case) -> IdentityToken | None:
    for sink in case.identity.sinks:
        path = Path(sink.directory) / sink.names.get("token", "token")
        try:
            found = read_token(path.read_text("ascii"), whose=case.name, now=case.toolbox.clock.now())
        except (OSError, ValueError, RefreshError):
            continue
        if found.expires_at > case.toolbox.clock.now():
            return found
    return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "empty"
