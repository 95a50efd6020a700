"""The first links: the agent that should run, the source, and the token that came from it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent import providers, sources
from agent.claims import read_token
from agent.doctor.case import PATIENCE, Case, View, broken, ok, tag, warning
from agent.doctor.report import Finding
from agent.errors import ConfigError, RefreshError
from agent.model import IdentityToken
from agent.offload import in_thread
from agent.record import UNSEEN

AHEAD = 5.0
"""Seconds by which a token may come from the future before the clocks are to blame."""
START = "start the agent"
KEPT = "bring them back before the agent is restarted: it signs from memory, and would make keys that nobody trusts yet"
"""Where it runs."""
SHOWN = 80
"""Characters of what was asked for at run time: scopes can be many."""
SHORT = 60.0
"""Seconds: a token with less is fetched anew before an exchange."""


def agent(case: Case) -> list[Finding]:
    """The running agent's own view."""
    view = case.view
    if view.status is None:
        return [broken("agent", view.absence, view.remedy)]
    found: Mapping[str, Any] | None = next((one for one in view.status["identities"] if one["name"] == case.name), None)
    if found is None:
        remedy = "let it read the configuration again: send it SIGHUP, and look in its log for why that was refused"
        return [broken("agent", f"answers on {view.socket}, and does not know this identity", remedy), *_refused(view)]
    failures = [found["failure"], *(sink["failure"] for sink in found["sinks"])]
    failure = next((one for one in failures if one), None)
    text = f"answers on {view.socket}: {found['state']}"
    unseen = str(found["note"]) if (found.get("serviceAccount") or {}).get("watched") is False and UNSEEN in found["note"] else ""
    if found["state"] == "fresh" and not failure and unseen:
        return [
            warning("agent", f"{text}; {unseen}", "the right to watch it: docs/rbac/watch.yaml"),
            *_variants(case, found),
            *_refused(view),
        ]
    if found["state"] == "fresh" and not failure:
        return [ok("agent", text), *_variants(case, found), *_refused(view)]
    why = f", last failure {failure['result']} ({failure['count']} in a row): {case.own(failure['message'])}" if failure else ""
    remedy = str(failure["remedy"] if failure else "") or "see the links below"
    verdict = warning if found["state"] == "fresh" else broken
    return [verdict("agent", f"{text}{why}", remedy), *_variants(case, found), *_refused(view)]


def _variants(case: Case, found: Mapping[str, Any]) -> list[Finding]:
    """What workloads have asked for at run time, and nobody else would hear of."""
    return [
        warning("agent", f"asked for {variant[:SHOWN]}: {failure['result']}: {case.own(failure['message'])}", failure["remedy"])
        for variant, failure in found.get("variantFailures", {}).items()
    ]


def _refused(view: View) -> list[Finding]:
    """What is walked here is the file as it is now, and the agent may run on an earlier one."""
    refused = view.status.get("refusedConfiguration") if view.status else None
    if not refused:
        return []
    text = f"it refused the configuration file as it is now, and runs on the one before: {refused[0]}"
    return [
        warning("agent", text, "" if "need a restart" in refused[0] else "wi-agent check, as the agent's user and with its environment")
    ]


async def source(case: Case, keys: ConfigError | None) -> list[Finding]:
    """Takes a token as the agent would, for any audience: whom it is for is the next link's question."""
    settings = case.identity.source
    kind = tag(settings)
    if fault := keys if case.embedded and keys else _keyless(case):
        case.token = await delivered(case)
        remedy = KEPT if case.view.status and fault.remedy.startswith(START) else fault.remedy
        if case.token is None:
            return [broken("source", fault.message, remedy)]
        return [warning("source", f"{fault.message}; the delivered token is looked at instead", remedy)]
    provider = providers.build(case.identity.provider, case.name, case.toolbox)
    try:
        case.token = await sources.build(settings, case.name, case.toolbox).fetch(() if kind == "file" else provider.audiences)
    except RefreshError as error:
        return [broken("source", f"{kind}: {case.own(error.message)}", error.remedy)]
    if kind == "kubernetes":
        return [ok("source", f"{kind}: the API server gives tokens of {case.token.subject if case.token else 'nobody'}")]
    where = case.config.issuer.state if case.embedded and case.config.issuer else getattr(settings, "path", "")
    return [ok("source", f"{kind}: {'signs with the key in' if case.embedded else 'a token lies in'} {where}")]


def _keyless(case: Case) -> ConfigError | None:
    """That the agent's own issuer has nothing to sign with, if so."""
    block, issuer = case.config.issuer, case.toolbox.issuer
    if not case.embedded or block is None or (issuer and issuer.keys.public_keys()["keys"]):
        return None
    remedy = "whoever makes the keys has to bring them there" if block.read_only else f"{START}: it makes the first key"
    return ConfigError(f"issuer: there is no key in {block.state}", remedy=remedy)


def token(case: Case) -> list[Finding]:
    """What the token says of itself."""
    found, now = case.token, case.toolbox.clock.now()
    if found is None:
        return []
    wanted = providers.build(case.identity.provider, case.name, case.toolbox).audiences
    if wanted and not set(wanted) & set(found.audiences):
        text = f"it is for {_listed(found.audiences)}, and the provider asks for {_listed(wanted)}"
        return [broken("token", text, "project the token with that audience, or set provider.audiences")]
    ahead = (found.issued_at - now).total_seconds()
    if ahead > AHEAD:
        text = f"it was issued {ahead:.0f} s in the future: this machine's clock is that far behind its issuer's, or more"
        return [broken("token", text, "set this machine's clock: systemctl status systemd-timesyncd, or chronyc tracking")]
    if missing := [name for name, value in (("iss", found.issuer), ("sub", found.subject)) if not value]:
        return [broken("token", f"it has no {' and no '.join(missing)}", "no cloud takes such a token: give the identity another source")]
    left = (found.expires_at - now).total_seconds()
    text = f"sub {found.subject}, aud {_listed(found.audiences)}, iss {found.issuer}; {left:.0f} s left"
    if left < SHORT and not case.embedded:
        return [warning("token", text, "too little for an exchange: whoever writes the file renews it late")]
    return [ok("token", text)]


async def delivered(case: Case) -> IdentityToken | None:
    """What lies in a sink, where the source gives nothing: the issuer's keys may not be for this user's eyes."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await in_thread(f"look {case.name}", lambda: _read(case))
    except TimeoutError:
        return None  # the sinks' own line says so


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
    return ", ".join(names) or "nobody"
