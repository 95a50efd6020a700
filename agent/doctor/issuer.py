"""The issuer as a verifier sees it: discovery document and keys, fetched as a cloud fetches them.

OpenID Connect Discovery 1.0, section 4: the document lies below the issuer's URL, names that very URL, and says where
the keys (RFC 7517) are.
"""

import json
import os
from base64 import urlsafe_b64decode
from dataclasses import replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from agent.doctor.case import REQUEST_TIMEOUT_SECONDS, Case, broken, ok, warning
from agent.doctor.report import Finding, Verdict
from agent.parsing import json_object

LINK = "issuer"
DISCOVERY = "/.well-known/openid-configuration"
LARGEST = 1 << 20
"""Bytes of a document."""
SHOWN = 200
"""Characters of an address that a stranger wrote."""
PRIVATE = (".local", ".internal", ".localhost", ".svc")
"""Ends of names that only a cluster or a machine knows."""


class _Elsewhere(Exception):  # noqa: N818  # a finding
    """The document names keys that another host has; its address is a stranger's word, so it is not asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _Unusable(Exception):  # noqa: N818  # a finding
    """Why a document cannot be used, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


async def look(case: Case) -> list[Finding]:
    """Reachable, about itself, and with the key that signed the token; or why not."""
    url = case.token.issuer if case.token else ""
    try:
        keys_url, signer = await _verify(case, url)
    except _Unusable as why:
        return [broken(LINK, why.reason, why.remedy)]
    except _Elsewhere as other:
        text = f"{url} answers, and names keys on another host, which the doctor does not ask: {other.url[:SHOWN]!r}"
        return [warning(LINK, text, f"see there whether {kid(case)} is among them, if that host is the issuer's")]
    found = doubts(url, keys_url) if case.has_cloud else []
    if found:
        remedy = "serve both documents over https from a public address, or host a copy: wi-agent issuer export DIR"
        return [warning(LINK, f"{url} answers, but {' and '.join(found)}", remedy)]
    return [ok(LINK, f"{url} publishes the key {signer}")]


async def _verify(case: Case, url: str) -> tuple[str, str]:
    """Where the keys are, and which one signed the token. Raises _Unusable or _Elsewhere."""
    if not _is_url(url):
        raise _Unusable(f"the token's iss {url!r} is no URL that anybody could ask", "give the identity a source with an OIDC issuer")
    place = url.rstrip("/") + DISCOVERY
    document = await _fetch(case, place)
    if document.get("issuer") != url:
        reason = f"the document at {place} is that of {document.get('issuer')!r}, the token's iss is {url!r}"
        raise _Unusable(reason, "both have to be the same to the letter, a last slash too: set issuer.url, or mend what is hosted")
    keys_url = document.get("jwks_uri")
    if not isinstance(keys_url, str) or not _is_url(keys_url):
        raise _Unusable(f"the document at {place} names no jwks_uri", "wi-agent issuer export DIR writes both documents")
    if _origin(keys_url) != _origin(url):
        raise _Elsewhere(keys_url)
    published, signer = kids(await _fetch(case, keys_url)), kid(case)
    if signer not in published:
        remedy = "the issuer has dropped that key, or not yet published it: renew the token"
        if case.uses_own_issuer:
            remedy = "what answers there is another agent's or an old copy: let this agent serve it, or wi-agent issuer export DIR again"
        raise _Unusable(f"{keys_url} has the keys {', '.join(published) or 'none'}, and not {signer}, which signed the token", remedy)
    return keys_url, signer


def softened(findings: list[Finding]) -> list[Finding]:
    """For when the cloud has just taken the token: whatever is in the way is between here and the issuer, or private to this network."""
    return [
        replace(finding, verdict=Verdict.WARNING, text=f"{finding.text}; the cloud verified the token all the same", remedy="")
        if finding.verdict is Verdict.BROKEN
        else finding
        for finding in findings
    ]


async def _fetch(case: Case, url: str) -> dict[str, Any]:
    """The JSON object at this address. Raises _Unusable."""
    import aiohttp  # noqa: PLC0415  # loaded by the session anyway

    session = await case.toolbox.http()
    try:
        async with session.get(url, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)) as response:
            status, body = response.status, await response.content.read(LARGEST)
            while status == 200 and len(body) < LARGEST and (more := await response.content.read(LARGEST)):
                body += more
    except aiohttp.ClientConnectorCertificateError as error:
        reason = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
        raise _Unusable(f"{url}: the certificate: {reason}", "use a certificate that the clouds' public authorities know") from None
    except TimeoutError:
        raise _Unusable(f"{url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", await _nearby(case, url)) from None
    except aiohttp.ClientConnectorError as error:
        raise _Unusable(f"{url} cannot be reached: {_why(error.os_error)}", await _nearby(case, url)) from None
    except aiohttp.ClientError as error:
        raise _Unusable(f"{url} cannot be read: {type(error).__name__}", await _nearby(case, url)) from None
    if 300 <= status < 400:
        raise _Unusable(f"{url} answers {status}, a redirect, which not every cloud follows", "answer 200 at that very address")
    if status != 200:
        raise _Unusable(f"{url} answers {status}", await _nearby(case, url))
    document = json_object(body, longest=LARGEST)
    if document is None:
        raise _Unusable(f"{url} answers with something that is no JSON object", "mend what is hosted: wi-agent issuer export DIR")
    return document


async def _nearby(case: Case, url: str) -> str:
    """What to do, after a look at whether the agent's own listener answers."""
    import aiohttp  # noqa: PLC0415  # as above

    block = case.config.issuer
    addresses = [address for address in block.listen if not address.path] if block and case.uses_own_issuer else []
    if not addresses:
        return f"check name, route, certificate and proxy of {urlsplit(url).netloc.rpartition('@')[2]}"
    host = addresses[0].host or "127.0.0.1"
    near = f"http://[{host}]:{addresses[0].port}" if ":" in host else f"http://{host}:{addresses[0].port}"
    session = await case.toolbox.http()
    try:
        async with session.get(
            near + DISCOVERY, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        ) as response:
            answers = response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        answers = False
    if answers:
        return f"the agent itself answers on {near}: mend what stands between (name, proxy, certificate), or issuer.url"
    return f"the agent does not answer on {near} either: start it, or host a copy: wi-agent issuer export DIR"


def _why(error: OSError | None) -> str:
    """The system's own words: asyncio's name addresses as Python writes them. Failures to find a name have no number."""
    if error is not None and error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "it has no address"


def doubts(url: str, keys_url: str) -> list[str]:
    """Why no cloud could read the documents."""
    found = []
    if url.startswith("http://") or keys_url.startswith("http://"):
        found.append("no cloud fetches over http")
    hosts = {urlsplit(one).hostname or "" for one in (url, keys_url)}
    if private := sorted(host for host in hosts if _is_private(host)):
        found.append(f"the cloud has to reach {', '.join(private)} over the Internet")
    return found


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"https", "http"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(PRIVATE)


def kids(document: dict[str, Any]) -> list[str]:
    """Of the keys that a JWKS holds."""
    keys = document.get("keys")
    return [str(key.get("kid", "")) for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


def kid(case: Case) -> str:
    """From the token's header, which is no secret; the rest of it is left alone."""
    header = case.token.value.reveal().partition(".")[0] if case.token else ""
    return str(json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4))).get("kid", ""))
