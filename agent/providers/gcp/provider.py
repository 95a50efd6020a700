"""Google Cloud: workload identity federation, service account impersonation, and the files and variables its SDKs read.

https://cloud.google.com/iam/docs/workload-identity-federation
https://google.aip.dev/auth/4117 (the file of external account credentials)
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import Rejected
from agent.http.client import REQUEST_TIMEOUT_SECONDS, HttpClient
from agent.model import Credential, IdentityToken, PriorDelivery
from agent.providers.gcp import gke
from agent.providers.gcp.client import Exchange
from agent.providers.gcp.credentials import AccessToken, IdToken, access_token, token_file
from agent.providers.gcp.gke import Cluster
from agent.providers.gcp.settings import GcpSettings
from agent.providers.gcp.targets import Account, ExchangeTarget
from agent.settings import Url
from agent.toolbox import Toolbox
from agent.variants import GOOGLE_AUDIENCE, GOOGLE_SCOPE, ID_TOKEN_PREFIX, MAX_SCOPES


class GcpProvider:
    """Exchanges a token for an access token, or leaves that to the SDK."""

    def __init__(self, settings: GcpSettings, identity: str, toolbox: Toolbox, *, timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._client = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, timeout=timeout)
        self._local_client = HttpClient(toolbox.http, whose=identity, timeout=timeout)
        """For the metadata server on this node: without proxy or CA file."""
        self._cluster: Cluster | None = None

    @property
    def audiences(self) -> Sequence[str]:
        """Empty with `gke` before `prepare`."""
        return self._settings.wanted_audiences or ((self._cluster.pool,) if self._cluster else ())

    @property
    def host(self) -> str:
        return self._settings.sts.host if self._settings.exchange else ""

    async def prepare(self) -> None:
        """Ask the metadata server for the cluster, once. Raise NotReady, Unavailable or Rejected."""
        if self._settings.gke and self._cluster is None:
            server = self._settings.metadata_endpoint
            self._cluster = await gke.read(self._local_client, _base(server) if server else gke.SERVER, self._identity)

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        await self.prepare()
        name = f"//iam.googleapis.com/{settings.workload_identity_provider}"  # in every universe: google-github-actions/auth#521
        target = _target(settings, self._cluster.audience if self._cluster else name, self._scopes(variant))
        files = token_file(target, _config(settings))
        if not settings.exchange:
            return files
        if token is None:
            raise Rejected(f"{self._identity}: cannot ask {name} without a token", remedy="give the identity another source")
        trust = settings.trust(issuer=token.issuer, subject=token.subject, audiences=token.audiences)
        exchange = Exchange(self._client, self._clock, target, token=token.value, trust=trust, whose=self._identity)
        account = settings.service_account or ""
        if variant.startswith(ID_TOKEN_PREFIX):
            audience = variant.removeprefix(ID_TOKEN_PREFIX)
            found, issued_at, expires_at = await exchange.id_token(audience)
            return IdToken(token=found, issued_at=issued_at, expires_at=expires_at, audience=audience, account=account, token_file=files)
        found, issued_at, expires_at = await exchange.access_token()
        return AccessToken(token=found, issued_at=issued_at, expires_at=expires_at, scopes=target.scopes, account=account, token_file=files)

    def restore(self, prior: PriorDelivery) -> Credential | None:
        audience = _restored_audience(self._settings, prior)
        if audience is None:
            return None
        target = _target(self._settings, audience, self._settings.scopes)
        files = token_file(target, _config(self._settings))
        if not self._settings.exchange:
            return files
        token = access_token(prior.files["credentials"].reveal()) if "credentials" in prior.files else None
        issued_at, expires_at = prior.delivery.credential_issued_at, prior.delivery.credential_expires_at
        if not (token and issued_at and expires_at):
            return None
        account = self._settings.service_account or ""
        return AccessToken(token=token, issued_at=issued_at, expires_at=expires_at, scopes=target.scopes, account=account, token_file=files)

    def _scopes(self, variant: str) -> tuple[str, ...]:
        """Return the scopes to ask for. Raise Rejected if the variant is invalid or not allowed."""
        if variant.startswith(ID_TOKEN_PREFIX):
            if self._settings.service_account and GOOGLE_AUDIENCE.fullmatch(variant.removeprefix(ID_TOKEN_PREFIX)):
                return self._settings.scopes
            raise Rejected(f"{self._identity}: only a service account has ID tokens", remedy="set provider.serviceAccount")
        scopes = tuple(variant.split(" ")) if variant else self._settings.scopes
        if len(scopes) > MAX_SCOPES or not all(GOOGLE_SCOPE.fullmatch(scope) for scope in scopes):
            raise Rejected(f"{self._identity}: the client asked for invalid scopes", remedy="correct the scopes in the workload")
        allowed = self._settings.run_time_scopes
        if variant and allowed is not None and not allowed.issuperset(scopes):
            raise Rejected(
                f"{self._identity}: the client asked for scopes that are not allowed", remedy="name them in provider.scopesAllowed"
            )
        return scopes


def _target(settings: GcpSettings, audience: str, scopes: Sequence[str]) -> ExchangeTarget:
    account = None
    if settings.service_account:
        iam = settings.iam_endpoint or Url(f"https://iamcredentials.{settings.universe_domain}")
        lifetime = settings.lifetime.seconds if settings.lifetime else None
        account = Account(email=settings.service_account, base=_base(iam), delegates=settings.delegates, lifetime=lifetime)
    return ExchangeTarget(base=_base(settings.sts), audience=audience, universe=settings.universe_domain, scopes=scopes, account=account)


def _base(url: Url) -> str:
    """Return the URL for the workload's files, without userinfo, which `faults` refuses."""
    return url.shown.rstrip("/")


def _config(settings: GcpSettings) -> Mapping[str, Any]:
    """Return the settings that the workload may see."""
    shown = {
        "workloadIdentityProvider": settings.workload_identity_provider,
        "serviceAccount": settings.service_account,
        "delegates": settings.delegates,
        "scopes": settings.scopes,
        "universeDomain": settings.universe_domain,
        "projectID": settings.effective_project,
    }
    return {name: value for name, value in shown.items() if value}


def _restored_audience(settings: GcpSettings, prior: PriorDelivery) -> str | None:
    """Return the audience; in GKE the one in the file, because finding it again takes the network. None if it is not there."""
    if not settings.gke:
        return f"//iam.googleapis.com/{settings.workload_identity_provider}"
    try:
        audience = json.loads(prior.files["config"].reveal())["audience"]
    except (ValueError, LookupError, TypeError):
        return None
    return audience if isinstance(audience, str) and audience.startswith("identitynamespace:") else None
