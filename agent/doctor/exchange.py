"""The exchange: one real one, with the patience that the agent has."""

import asyncio
from typing import Any

from msgspec.structs import replace

from agent import providers
from agent.doctor.case import Case, broken, ok, tag, warning
from agent.doctor.report import Finding, Verdict
from agent.errors import RefreshError, Unavailable

LINK = "exchange"
WHOSE = ("role_arn", "client_id")
"""Settings that name the principal, where there is no chain of `roles`."""


async def attempt(case: Case) -> list[Finding]:
    """Asks the cloud once. Where an SDK is to ask by itself, asks as it would; from elsewhere, so that silence proves nothing."""
    settings = case.identity.provider
    left_to_sdk = getattr(settings, "exchange", True) is False
    tried = replace(settings, exchange=True) if left_to_sdk else settings
    provider = providers.build(tried, case.name, case.toolbox)
    if not provider.host:
        return [Finding(LINK, Verdict.UNUSED, f"provider {tag(settings)} exchanges nothing: the token is the credential")]
    by = " (asked as the SDK would)" if left_to_sdk else ""
    try:
        async with asyncio.timeout(case.timeout):
            credential = await provider.exchange(case.token)
    except TimeoutError:
        text = f"{provider.host} did not answer within {case.timeout:.0f} s"
        return [(warning if left_to_sdk else broken)(LINK, text + by, "check the network, provider.proxy, and refresh.timeout")]
    except RefreshError as error:
        silent = left_to_sdk and isinstance(error, Unavailable)
        remedy = error.remedy or f"try again later; check the network and whether {provider.host} is reachable from here"
        return [(warning if silent else broken)(LINK, case.own(error.message) + by, remedy)]
    case.exchanged = True
    until = f" until {credential.expires_at:%Y-%m-%dT%H:%M:%SZ}" if credential.expires_at else ""
    return [ok(LINK, f"{provider.host} gave {_gift(settings)}{until}{by}")]


def _gift(settings: Any) -> str:
    """What this cloud gives, and whose it is."""
    roles = getattr(settings, "roles", ())
    whose = roles[-1] if roles else next((found for name in WHOSE if (found := getattr(settings, name, None))), "")
    kind = "a session" if tag(settings) in {"aws", "alibaba"} else "an access token"
    return f"{kind} of {whose}" if whose else kind
