"""The source's link: a token, taken as the agent would take it."""

from agent import providers, sources
from agent.doctor.case import Case, broken, ok, tag, warning
from agent.doctor.report import Finding
from agent.doctor.token import delivered
from agent.errors import ConfigError, RefreshError
from agent.sources.file import FileSettings

LINK = "source"
START = "start the agent: it makes the first key"
BRING = "put the keys into that directory: with issuer.readOnly another process makes them"
RESTORE = "restore the keys before you restart the agent: it signs from memory, and would make new keys that no cloud trusts yet"


async def look(case: Case, unreadable: ConfigError | None) -> list[Finding]:
    """Take a token for any audience: the token's link checks the audience. `unreadable`: why the issuer's keys cannot be read."""
    settings = case.identity.source
    kind = tag(settings)
    if fault := _key_fault(case, unreadable):
        case.token = await delivered(case)
        if case.token is None:
            return [broken(LINK, fault.message, fault.remedy)]
        return [warning(LINK, f"{fault.message}; the doctor checks the delivered token instead", fault.remedy)]
    provider = providers.build(case.identity.provider, case.name, case.toolbox)
    try:
        case.token = await sources.build(settings, case.name, case.toolbox).fetch(() if kind == "file" else provider.audiences)
    except RefreshError as error:
        return [broken(LINK, f"{kind}: {case.without_name(error.message)}", error.remedy)]
    if kind == "kubernetes":
        return [ok(LINK, f"{kind}: the API server issues tokens of {case.token.subject if case.token else 'no subject'}")]
    if isinstance(settings, FileSettings):
        return [ok(LINK, f"{kind}: the token is stored in {settings.path}")]
    return [ok(LINK, f"{kind}: signs with the key in {case.config.issuer.state if case.config.issuer else 'no directory'}")]


def _key_fault(case: Case, unreadable: ConfigError | None) -> ConfigError | None:
    """Return why the agent's own issuer cannot sign here; None if it can, or if the source is another."""
    block, issuer = case.config.issuer, case.toolbox.issuer
    if not case.uses_own_issuer or block is None:
        return None
    if unreadable is None and issuer and issuer.keys.public_keys()["keys"]:
        return None
    fault = unreadable or ConfigError(f"issuer: there is no key in {block.state}", remedy=BRING if block.read_only else START)
    missing = unreadable is None or isinstance(unreadable.__cause__, FileNotFoundError)
    if missing and case.view.status is not None and not block.read_only:
        return ConfigError(fault.message, remedy=RESTORE)
    return fault
