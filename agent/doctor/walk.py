"""The walk: the links of each identity in order, and which links need which."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from random import SystemRandom

from agent.clock import Clock
from agent.config.model import Config, Identity
from agent.counters import Counters
from agent.doctor import agent, endpoint, exchange, issuer, kubernetes, sinks, source, token
from agent.doctor.case import Case, View, broken, skipped
from agent.doctor.report import Finding, Sheet, Verdict
from agent.errors import ConfigError, frames
from agent.http.session import Session
from agent.kube.clients import KubeClients
from agent.sources.issuer import IssuerSettings
from agent.toolbox import Issuer, Resources, Toolbox

MAX_CONCURRENT_IDENTITIES = 8


async def examine(
    config: Config, identities: Sequence[Identity], *, environ: Mapping[str, str], view: View, base: str, clock: Clock
) -> list[Sheet]:
    """Return a sheet for each of these identities. Every connection is closed again, and nothing is written."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(Session())
        resources = await stack.enter_async_context(Resources(session.get))
        kube = await stack.enter_async_context(KubeClients(clock, environ))
        own, keys = await _keys(config, clock)
        toolbox = Toolbox(
            clock=clock, random=SystemRandom(), counters=Counters(), http=session.get, issuer=own, resources=resources, kube=kube
        )
        turns = asyncio.Semaphore(MAX_CONCURRENT_IDENTITIES)

        async def one(identity: Identity) -> Sheet:
            async with turns:
                return await _walk(Case(identity=identity, config=config, toolbox=toolbox, environ=environ, view=view, base=base), keys)

        return list(await asyncio.gather(*(one(identity) for identity in identities)))


async def _keys(config: Config, clock: Clock) -> tuple[Issuer | None, ConfigError | None]:
    """Return the agent's own issuer as its state directory has it, and why its keys cannot be read."""
    if config.issuer is None:
        return None, None
    from agent.issuer.discovery import keyring_of  # noqa: PLC0415  # cryptography, only where there is an issuer

    keyring = keyring_of(config.issuer, clock)
    try:
        await keyring.glance()
    except ConfigError as error:
        return Issuer(url=config.issuer.url.text, keys=keyring.keys), error
    return Issuer(url=config.issuer.url.text, keys=keyring.keys), None


async def _walk(case: Case, keys: ConfigError | None) -> Sheet:
    sheet = Sheet(case.name)
    sheet.findings += await _look("agent", lambda: _now(agent.look(case)))
    sheet.findings += await _look("account", lambda: kubernetes.look(case))
    sheet.findings += await _look("source", lambda: source.look(case, keys))
    sheet.findings += [skipped("token", "the source")] if case.token is None else await _look("token", lambda: _now(token.look(case)))
    unusable = any(finding.link == "token" and finding.verdict in {Verdict.BROKEN, Verdict.SKIPPED} for finding in sheet.findings)
    found = [skipped("issuer", "the source")] if case.token is None else await _look("issuer", lambda: _issuer(case))
    tried = [skipped("exchange", "the token")] if unusable else await _look("exchange", lambda: _exchange(case))
    sheet.findings += issuer.softened(found) if case.exchanged else found
    sheet.findings += tried
    refused = unusable or any(finding.verdict in {Verdict.BROKEN, Verdict.SKIPPED} for finding in tried)
    sheet.findings += await _look("sinks", lambda: sinks.look(case, refused=refused))
    sheet.findings += await _look("endpoint", lambda: endpoint.look(case, refused=refused))
    sheet.trust = await _trust(case)
    return sheet


async def _issuer(case: Case) -> list[Finding]:
    return await kubernetes.documents(case) or await issuer.look(case)


async def _exchange(case: Case) -> list[Finding]:
    return [skipped("exchange", "the ServiceAccount")] if kubernetes.unnamed(case) else await exchange.attempt(case)


async def _now(findings: list[Finding]) -> list[Finding]:
    return findings


async def _look(link: str, call: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """Return the findings of one link. A bug in it does not stop the others, and its message is not printed: it may hold a secret."""
    try:
        return await call()
    except Exception as error:  # noqa: BLE001
        where = (frames(error) or ["?"])[-1]
        return [broken(link, f"the doctor itself failed: {type(error).__name__} at {where}", "report this as a bug")]


async def _trust(case: Case) -> Sequence[str]:
    """Return the commands for the cloud's side, from the token or, without one, from the configuration.

    Return nothing if issuer or subject hold a character that could end a word, a line or a comment of the shell: a token may hold any.
    """
    found = case.token or await token.delivered(case)
    own = case.identity.source if isinstance(case.identity.source, IssuerSettings) else None
    subject = found.subject if found else own.subject if own else ""
    url = found.issuer if found else case.config.issuer.url.text if case.uses_own_issuer and case.config.issuer else ""
    if not found and not case.uses_own_issuer and case.has_cloud:
        return ["# issuer and subject are in its token: run the doctor again when the source yields one"]
    if kubernetes.unnamed(case) or not re.fullmatch(r"[!-~]+", url) or not subject or not subject.isprintable():
        return ()
    return case.identity.provider.trust_commands(issuer=url, subject=subject, claims=own.claims if own else {})
