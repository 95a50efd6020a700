"""The exchange's link: one real exchange, with the agent's own timeout."""

import asyncio

from msgspec.structs import replace

from agent import providers
from agent.doctor.case import Case, broken, ok, tag, warning
from agent.doctor.report import Finding, Verdict
from agent.errors import RefreshError, Unavailable
from agent.providers import ProviderSettings

LINK = "exchange"


async def attempt(case: Case) -> list[Finding]:
    """Ask the cloud once.

    If the workload's SDK makes the exchange (`exchange: false`), the doctor asks as the SDK would. It asks from another place, so that
    a timeout is only a warning.
    """
    settings = case.identity.provider
    left_to_sdk = settings.left_to_sdk
    tried = replace(settings, exchange=True) if left_to_sdk else settings
    provider = providers.build(tried, case.name, case.toolbox)
    if not provider.host:
        return [Finding(LINK, Verdict.UNUSED, f"provider {tag(settings)} exchanges nothing: the token is the credential")]
    by = " (asked as the SDK would)" if left_to_sdk else ""
    try:
        async with asyncio.timeout(case.exchange_timeout_seconds):
            credential = await provider.exchange(case.token)
    except TimeoutError:
        text = f"{provider.host} did not answer within {case.exchange_timeout_seconds:.0f} s"
        return [(warning if left_to_sdk else broken)(LINK, text + by, "check the network, provider.proxy and refresh.timeout")]
    except RefreshError as error:
        silent = left_to_sdk and isinstance(error, Unavailable)
        remedy = error.remedy or f"run the doctor again later; check the network, and that this machine can reach {provider.host}"
        return [(warning if silent else broken)(LINK, case.without_name(error.message) + by, remedy)]
    case.exchanged = True
    until = f" until {credential.expires_at:%Y-%m-%dT%H:%M:%SZ}" if credential.expires_at else ""
    return [ok(LINK, f"{provider.host} returned {_granted(settings)}{until}{by}")]


def _granted(settings: ProviderSettings) -> str:
    """Return what this cloud grants, and the principal that it is for."""
    return f"{settings.credential_noun} of {settings.principal}" if settings.principal else settings.credential_noun
