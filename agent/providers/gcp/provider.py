"""Google Cloud: workload identity federation, service account impersonation, and the files and variables its SDKs read.

https://cloud.google.com/iam/docs/workload-identity-federation
https://google.aip.dev/auth/4117 (the file of external account credentials)
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.envvars import EnvVars
from agent.errors import Rejected
from agent.http.client import PATIENCE, HttpClient
from agent.model import Credential, IdentityToken, Paths, PriorDelivery
from agent.providers.gcp import gke
from agent.providers.gcp.client import Exchange
from agent.providers.gcp.credentials import AccessToken, IdToken, TokenFile, access_token
from agent.providers.gcp.environment import from_files
from agent.providers.gcp.facts import facts as facts_of
from agent.providers.gcp.gke import Cluster
from agent.providers.gcp.settings import ANNOTATIONS, GcpSettings, faults
from agent.providers.gcp.targets import Account, ExchangeTarget
from agent.providers.gcp.trust import Trust
from agent.settings import Url
from agent.toolbox import Toolbox
from agent.variants import GOOGLE_AUDIENCE, GOOGLE_SCOPE, ID_TOKEN_PREFIX, MAX_SCOPES

__all__ = ["ANNOTATIONS", "GcpProvider", "GcpSettings", "environment", "facts", "faults", "trust_of"]


class GcpProvider:
    """Exchanges a token for an access token, or leaves that to the SDK."""

    def __init__(self, settings: GcpSettings, identity: str, toolbox: Toolbox, *, patience: float = PATIENCE) -> None:
        self._settings = settings
        self._identity = identity
        self._clock = toolbox.clock
        self._wire = HttpClient(toolbox.http, whose=identity, ca_file=settings.ca_file, proxy=settings.proxy, patience=patience)
        self._near = HttpClient(toolbox.http, whose=identity, patience=patience)
        """To what is on this node."""
        self._cluster: Cluster | None = None

    @property
    def audiences(self) -> Sequence[str]:
        """Nobody, with `gke` before `prepare`."""
        return self._settings.wanted_audiences or ((self._cluster.pool,) if self._cluster else ())

    @property
    def host(self) -> str:
        return self._settings.sts.host if self._settings.exchange else ""

    async def prepare(self) -> None:
        """Learns which cluster this is, once. Raises NotReady, Unavailable or Rejected."""
        if self._settings.gke and self._cluster is None:
            server = self._settings.metadata_endpoint
            self._cluster = await gke.read(self._near, _base(server) if server else gke.SERVER, self._identity)

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        await self.prepare()
        name = f"//iam.googleapis.com/{settings.workload_identity_provider}"  # in every universe: google-github-actions/auth#521
        target = _errand(settings, self._cluster.audience if self._cluster else name, self._scopes(variant))
        token_file = TokenFile(target=target, config=_config(settings))
        if not settings.exchange:
            return token_file
        if token is None:
            raise Rejected(f"{self._identity}: {name} gives nothing without a token", remedy="give the identity another source")
        trust = trust_of(settings, issuer=token.issuer, subject=token.subject, audiences=token.audiences)
        exchange = Exchange(self._wire, self._clock, target, token=token.value, trust=trust, whose=self._identity)
        account = settings.service_account or ""
        if variant.startswith(ID_TOKEN_PREFIX):
            audience = variant.removeprefix(ID_TOKEN_PREFIX)
            found, issued_at, expires_at = await exchange.id_token(audience)
            return IdToken(
                token=found, issued_at=issued_at, expires_at=expires_at, audience=audience, account=account, token_file=token_file
            )
        found, issued_at, expires_at = await exchange.access_token()
        return AccessToken(
            token=found, issued_at=issued_at, expires_at=expires_at, scopes=target.scopes, account=account, token_file=token_file
        )

    def restore(self, prior: PriorDelivery) -> Credential | None:
        audience = _restored_audience(self._settings, prior)
        if audience is None:
            return None
        target = _errand(self._settings, audience, self._settings.scopes)
        token_file = TokenFile(target=target, config=_config(self._settings))
        if not self._settings.exchange:
            return token_file
        token = access_token(prior.files["credentials"].reveal()) if "credentials" in prior.files else None
        issued_at, expires_at = prior.delivery.credential_issued_at, prior.delivery.credential_expires_at
        if not (token and issued_at and expires_at):
            return None
        account = self._settings.service_account or ""
        return AccessToken(
            token=token, issued_at=issued_at, expires_at=expires_at, scopes=target.scopes, account=account, token_file=token_file
        )

    def _scopes(self, variant: str) -> tuple[str, ...]:
        """Those to ask for. Raises Rejected where a variant cannot be had."""
        if variant.startswith(ID_TOKEN_PREFIX):
            if self._settings.service_account and GOOGLE_AUDIENCE.fullmatch(variant.removeprefix(ID_TOKEN_PREFIX)):
                return self._settings.scopes
            raise Rejected(f"{self._identity}: there are ID tokens only of service accounts", remedy="set provider.serviceAccount")
        scopes = tuple(variant.split(" ")) if variant else self._settings.scopes
        if len(scopes) > MAX_SCOPES or not all(GOOGLE_SCOPE.fullmatch(scope) for scope in scopes):
            raise Rejected(f"{self._identity}: what was asked for are no scopes", remedy="correct the scopes in the workload")
        allowed = self._settings.run_time_scopes
        if variant and allowed is not None and not allowed.issuperset(scopes):
            raise Rejected(f"{self._identity}: scopes were asked for that are not allowed", remedy="name them in provider.scopesAllowed")
        return scopes


def _errand(settings: GcpSettings, audience: str, scopes: Sequence[str]) -> ExchangeTarget:
    account = None
    if settings.service_account:
        iam = settings.iam_endpoint or Url(f"https://iamcredentials.{settings.universe_domain}")
        lifetime = settings.lifetime.seconds if settings.lifetime else None
        account = Account(email=settings.service_account, base=_base(iam), delegates=settings.delegates, lifetime=lifetime)
    return ExchangeTarget(base=_base(settings.sts), audience=audience, universe=settings.universe_domain, scopes=scopes, account=account)


def _base(url: Url) -> str:
    """Without userinfo, which `faults` refuses, for it goes into the workload's files."""
    return url.shown.rstrip("/")


def _config(settings: GcpSettings) -> Mapping[str, Any]:
    """What the workload may see of them."""
    shown = {
        "workloadIdentityProvider": settings.workload_identity_provider,
        "serviceAccount": settings.service_account,
        "delegates": settings.delegates,
        "scopes": settings.scopes,
        "universeDomain": settings.universe_domain,
        "projectID": _project(settings),
    }
    return {name: value for name, value in shown.items() if value}


def _restored_audience(settings: GcpSettings, prior: PriorDelivery) -> str | None:
    """In GKE it is the one that was found before: finding it again would take the network."""
    if not settings.gke:
        return f"//iam.googleapis.com/{settings.workload_identity_provider}"
    try:
        audience = json.loads(prior.files["config"].reveal())["audience"]
    except (ValueError, LookupError, TypeError):
        return None
    return audience if isinstance(audience, str) and audience.startswith("identitynamespace:") else None


def _project(settings: GcpSettings) -> str:
    """Id or number, which Google's APIs take for one another; empty where only the cluster knows."""
    if settings.project:
        return settings.project
    local, _, domain = (settings.service_account or "").partition("@")
    if domain.endswith(".iam.gserviceaccount.com"):
        project, _, owner = domain.removesuffix(".iam.gserviceaccount.com").partition(".")
        return f"{owner}:{project}" if owner else project
    if local:
        return local.removesuffix("-compute")
    return settings.workload_identity_provider.split("/")[1] if settings.workload_identity_provider else ""


def environment(settings: GcpSettings, identity: str, paths: Paths) -> EnvVars:
    """What makes an SDK take this identity from its files."""
    return from_files(
        paths,
        project=_project(settings),
        universe=settings.universe_domain,
        token_file=not settings.delegates,
        exchanged=settings.exchange,
    )


def facts(settings: GcpSettings) -> Mapping[str, str]:
    """What a metadata server says of it."""
    return facts_of(settings, _project(settings))


def trust_of(settings: GcpSettings, *, issuer: str, subject: str, audiences: Sequence[str] = ()) -> Trust:
    """Who has to be believed, and as whom it acts."""
    return Trust(
        provider=settings.workload_identity_provider or "",
        issuer=issuer,
        subject=subject,
        audiences=audiences or settings.wanted_audiences,
        default_audience=not settings.audiences,
        account=settings.service_account or "",
        delegates=settings.delegates,
    )
