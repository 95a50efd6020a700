"""Amazon Web Services: STS AssumeRoleWithWebIdentity and AssumeRole, and the files and variables its SDKs read.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
https://docs.aws.amazon.com/sdkref/latest/guide/access-assume-role-web.html
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent.errors import Rejected, Unavailable, without_context
from agent.model import Credential, IdentityToken, PriorDelivery, Secret
from agent.providers.aws.client import AwsClients
from agent.providers.aws.credentials import Keys, SessionCredential, granted, read_keys, token_file
from agent.providers.aws.errors import Attempt, sort
from agent.providers.aws.settings import MIN_SESSION, AwsSettings
from agent.providers.aws.transport import Endpoint
from agent.providers.exchange import SIGN_IN_PAGE, ServiceError, implausible_end
from agent.toolbox import Toolbox


class AwsProvider:
    """Exchanges a token for a session of the role, or leaves that to the SDK."""

    def __init__(self, settings: AwsSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self._identity = identity
        self._toolbox = toolbox
        self._token_file = token_file(settings, identity)
        self.audiences = settings.audiences

    @property
    def host(self) -> str:
        return self._settings.sts.host if self._settings.exchange else ""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        if not settings.exchange:
            return self._token_file
        if token is None:
            raise Rejected(
                f"{self._identity}: cannot assume {settings.role_arn} without a token", remedy="give the identity another source"
            )
        issued_at = self._toolbox.clock.now()
        keys, expires_at = await self._ask(
            "assume_role_with_web_identity",
            {"RoleArn": settings.role_arn, "WebIdentityToken": token.value.reveal(), **self._session(chained=bool(settings.chain))},
            Attempt(role=settings.role_arn, region=settings.region, issuer=token.issuer, subject=token.subject, audiences=token.audiences),
            secret=token.value,
        )
        for index, step in enumerate(settings.chain):
            issued_at = self._toolbox.clock.now()
            tags = settings.tags(index)
            parameters = _given(
                RoleArn=step.role_arn,
                ExternalId=step.external_id,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                TransitiveTagKeys=list(step.transitive_tags),
                **self._session(chained=index < len(settings.chain) - 1),
            )
            caller = settings.roles[index]
            attempt = Attempt(
                role=step.role_arn, region=settings.region, caller=caller, external_id=bool(step.external_id), tagged=bool(tags)
            )
            keys, expires_at = await self._ask("assume_role", parameters, attempt, keys=keys)
        return self._credential(keys, issued_at, expires_at)

    def restore(self, prior: PriorDelivery) -> Credential | None:
        if not self._settings.exchange:
            return self._token_file
        keys = read_keys(prior.files["credentials"].reveal()) if "credentials" in prior.files else None
        issued_at, expires_at = prior.delivery.credential_issued_at, prior.delivery.credential_expires_at
        return self._credential(keys, issued_at, expires_at) if keys and issued_at and expires_at else None

    def _credential(self, keys: Keys, issued_at: datetime, expires_at: datetime) -> SessionCredential:
        return SessionCredential(
            keys=keys,
            issued_at=issued_at,
            expires_at=expires_at,
            role_arn=self._settings.principal,
            region=self._settings.region,
            token_file=self._token_file,
        )

    def _session(self, *, chained: bool) -> dict[str, Any]:
        """Return the parameters of both calls; a session that only assumes the next role is as short as AWS allows."""
        settings = self._settings
        if chained:
            return _given(RoleSessionName=settings.session(self._identity), DurationSeconds=MIN_SESSION.seconds)
        return _given(
            RoleSessionName=settings.session(self._identity),
            DurationSeconds=settings.duration and settings.duration.seconds,
            Policy=settings.policy,
            PolicyArns=[{"arn": arn} for arn in settings.policy_arns],
        )

    async def _ask(
        self, method: str, parameters: Mapping[str, Any], attempt: Attempt, *, secret: Secret | None = None, keys: Keys | None = None
    ) -> tuple[Keys, datetime]:
        """Return the keys and their expiry, UTC. Raise Unavailable or Rejected."""
        settings, clients = self._settings, self._toolbox.shared(AwsClients)
        endpoint = Endpoint(url=settings.sts, region=settings.region, ca_file=settings.ca_file, proxy=settings.proxy)
        with without_context():
            try:
                answer = await clients.call(endpoint, method, parameters, whose=self._identity, keys=keys)
            except ServiceError as refused:
                secrets = [one for one in (secret, keys and keys.secret_access_key, keys and keys.session_token) if one]
                raise sort(
                    refused, attempt, whose=self._identity, host=settings.sts.host, secrets=secrets, now=self._toolbox.clock.now()
                ) from None
            else:
                grant, now = granted(answer), self._toolbox.clock.now()
                reason = implausible_end(grant[1], now) if grant else ""
                if grant and not reason:
                    return grant
                raise Unavailable(
                    f"{self._identity}: {settings.sts.host} granted {f'a session that {reason}' if reason else 'an incomplete session'}",
                    remedy="compare the clock of this machine with AWS's" if reason else SIGN_IN_PAGE,
                )


def _given(**parameters: Any) -> dict[str, Any]:
    """Return the parameters that are not empty: AWS refuses an empty one."""
    return {name: value for name, value in parameters.items() if value}
