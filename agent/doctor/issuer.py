"""The issuer's link: discovery document and keys, fetched as a cloud fetches them.

OpenID Connect Discovery 1.0, section 4: the document is below the issuer's URL, names that same URL, and has the address
of the keys (RFC 7517).
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
MAX_DOCUMENT_BYTES = 1 << 20
MAX_ADDRESS_CHARACTERS = 200
"""Shown of an address in a document: another party wrote it."""
PRIVATE_SUFFIXES = (".local", ".internal", ".localhost", ".svc")
"""Of names that only a cluster or a machine can resolve."""


class _ForeignKeys(Exception):  # noqa: N818  # a finding
    """The document names keys on another host. The doctor does not fetch them: another party wrote that address."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _Unusable(Exception):  # noqa: N818  # a finding
    """The reason why a document is invalid, and a remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


async def look(case: Case) -> list[Finding]:
    """Check that the issuer is reachable, names itself, and publishes the key that signed the token."""
    url = case.token.issuer if case.token else ""
    try:
        keys_url, signer = await _verify(case, url)
    except _Unusable as why:
        return [broken(LINK, why.reason, why.remedy)]
    except _ForeignKeys as other:
        text = f"{url} answers, and names keys on another host, which the doctor does not ask: {other.url[:MAX_ADDRESS_CHARACTERS]!r}"
        return [warning(LINK, text, f"if that host belongs to the issuer, check that its keys have {kid(case)}")]
    found = doubts(url, keys_url) if case.has_cloud else []
    if found:
        remedy = "serve both documents over https from a public address, or host a copy: wi-agent issuer export DIR"
        return [warning(LINK, f"{url} answers, but {' and '.join(found)}", remedy)]
    return [ok(LINK, f"{url} publishes the key {signer}")]


async def _verify(case: Case, url: str) -> tuple[str, str]:
    """Return the address of the keys, and the key that signed the token. Raise _Unusable or _ForeignKeys."""
    if not _is_url(url):
        raise _Unusable(f"the token's iss {url!r} is not an http or https URL", "give the identity a source with an OIDC issuer")
    place = url.rstrip("/") + DISCOVERY
    document = await _fetch(case, place)
    if document.get("issuer") != url:
        reason = f"the document at {place} has the issuer {document.get('issuer')!r}, the token's iss is {url!r}"
        raise _Unusable(reason, "make both the same to the letter, including a last slash: set issuer.url, or correct the hosted document")
    keys_url = document.get("jwks_uri")
    if not isinstance(keys_url, str) or not _is_url(keys_url):
        raise _Unusable(f"the document at {place} names no jwks_uri", "wi-agent issuer export DIR writes both documents")
    if _origin(keys_url) != _origin(url):
        raise _ForeignKeys(keys_url)
    published, signer = kids(await _fetch(case, keys_url)), kid(case)
    if signer not in published:
        remedy = "renew the token: the issuer has dropped that key, or has not published it yet"
        if case.uses_own_issuer:
            remedy = "another agent or an old copy answers there: serve the keys of this agent, or run wi-agent issuer export DIR again"
        raise _Unusable(f"{keys_url} has the keys {', '.join(published) or 'none'}, and not {signer}, which signed the token", remedy)
    return keys_url, signer


def softened(findings: list[Finding]) -> list[Finding]:
    """Return broken findings as warnings, for a token that the cloud has just accepted: the fault is between here and the issuer."""
    return [
        replace(finding, verdict=Verdict.WARNING, text=f"{finding.text}; the cloud verified the token all the same", remedy="")
        if finding.verdict is Verdict.BROKEN
        else finding
        for finding in findings
    ]


async def _fetch(case: Case, url: str) -> dict[str, Any]:
    """Return the JSON object at this address. Raise _Unusable."""
    import aiohttp  # noqa: PLC0415  # loaded by the session anyway

    session = await case.toolbox.http()
    try:
        async with session.get(url, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)) as response:
            status, body = response.status, await response.content.read(MAX_DOCUMENT_BYTES)
            while status == 200 and len(body) < MAX_DOCUMENT_BYTES and (more := await response.content.read(MAX_DOCUMENT_BYTES)):
                body += more
    except aiohttp.ClientConnectorCertificateError as error:
        reason = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
        raise _Unusable(
            f"cannot verify the certificate of {url}: {reason}", "use a certificate of a public authority that clouds trust"
        ) from None
    except TimeoutError:
        raise _Unusable(f"{url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s", await _nearby(case, url)) from None
    except aiohttp.ClientConnectorError as error:
        raise _Unusable(f"cannot connect to {url}: {_why(error.os_error)}", await _nearby(case, url)) from None
    except aiohttp.ClientError as error:
        raise _Unusable(f"cannot read {url}: {type(error).__name__}", await _nearby(case, url)) from None
    if 300 <= status < 400:
        raise _Unusable(f"{url} answers {status}, a redirect, which not every cloud follows", "serve the document at that address")
    if status != 200:
        raise _Unusable(f"{url} answers {status}", await _nearby(case, url))
    document = json_object(body, longest=MAX_DOCUMENT_BYTES)
    if document is None:
        raise _Unusable(f"{url} does not answer with a JSON object", "correct the hosted document: wi-agent issuer export DIR")
    return document


async def _nearby(case: Case, url: str) -> str:
    """Return a remedy, which depends on whether the agent's own listener answers."""
    import aiohttp  # noqa: PLC0415  # as above

    block = case.config.issuer
    addresses = [address for address in block.listen if not address.path] if block and case.uses_own_issuer else []
    if not addresses:
        return f"check DNS name, route, certificate and proxy of {urlsplit(url).netloc.rpartition('@')[2]}"
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
        return f"the agent itself answers on {near}: correct the DNS name, proxy or certificate on the way to it, or issuer.url"
    return f"the agent does not answer on {near} either: start it, or host a copy: wi-agent issuer export DIR"


def _why(error: OSError | None) -> str:
    """Return the system's message: asyncio's has the address in Python's notation. A failed name lookup has no errno."""
    if error is not None and error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "the name has no address"


def doubts(url: str, keys_url: str) -> list[str]:
    """Return the reasons why no cloud can fetch the documents."""
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
        return "." not in host or host.endswith(PRIVATE_SUFFIXES)


def kids(document: dict[str, Any]) -> list[str]:
    """Return the key ids of a JWKS."""
    keys = document.get("keys")
    return [str(key.get("kid", "")) for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


def kid(case: Case) -> str:
    """Return the key id from the token's header, which is not secret; the rest of the token is not read."""
    header = case.token.value.reveal().partition(".")[0] if case.token else ""
    return str(json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4))).get("kid", ""))
