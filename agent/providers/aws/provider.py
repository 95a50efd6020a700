"""Amazon Web Services: STS AssumeRoleWithWebIdentity and AssumeRole, and the files and variables its SDKs read.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
https://docs.aws.amazon.com/sdkref/latest/guide/access-assume-role-web.html
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.errors import Rejected, Unavailable, without_context
from agent.model import Credential, IdentityToken, Paths, PriorDelivery, Secret
from agent.providers.aws import environment as variables
from agent.providers.aws.credentials import Keys, SessionCredential, granted, read_keys
from agent.providers.aws.errors import Attempt, ServiceError, sort
from agent.providers.aws.settings import ANNOTATIONS, SHORTEST, AwsSettings, faults, session_name, session_tags
from agent.providers.aws.transport import Endpoint
from agent.providers.aws.trust import TAGS, Step, Trust
from agent.toolbox import Toolbox

__all__ = ["ANNOTATIONS", "AwsProvider", "AwsSettings", "environment", "faults", "served", "trust_of"]

ABSURD = timedelta(days=3650)
"""A session that claims to last longer is none of STS's, which last for twelve hours at most."""


class TokenFileCredential:
    """What an SDK needs to do the exchange itself. Holds no secret and no clock of its own."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None

    def __init__(self, settings: AwsSettings, identity: str) -> None:
        self._settings = settings
        self._session_name = session_name(settings, identity)

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        """No `credentialsFile` for a narrowed session: with the token alone an SDK would get the wide one."""
        settings = self._settings
        ini = (
            "[default]\n"
            f"role_arn={settings.role_arn}\n"
            f"role_session_name={self._session_name}\n"
            f"web_identity_token_file={paths.path('token')}\n"
            f"region={settings.region}\n"
        )
        config = {
            "roleARN": settings.role_arn,
            "region": settings.region,
            "sessionName": self._session_name,
            "audiences": settings.audiences,
        }
        if settings.chain:
            config["chain"] = settings.roles[1:]
        files = {"config": Secret(msgspec.json.encode(config).decode())}
        return files if settings.narrowed else {"credentialsFile": Secret(ini), **files}

    def document(self) -> Mapping[str, Any]:
        return {}


class AwsProvider:
    """Exchanges a token for a session of the role, or leaves that to the SDK."""

    def __init__(self, settings: AwsSettings, identity: str, toolbox: Toolbox) -> None:
        self._settings = settings
        self._identity = identity
        self._toolbox = toolbox
        self._session_name = session_name(settings, identity)
        self.audiences = settings.audiences

    @property
    def host(self) -> str:
        return self._settings.sts.host if self._settings.exchange else ""

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        settings = self._settings
        if not settings.exchange:
            return TokenFileCredential(settings, self._identity)
        if token is None:
            raise Rejected(
                f"{self._identity}: {settings.role_arn} cannot be taken without a token", remedy="give the identity another source"
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
            tags = session_tags(settings, index)
            parameters = _given(
                RoleArn=step.role_arn,
                ExternalId=step.external_id,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                TransitiveTagKeys=list(step.transitive_tags),
                **self._session(chained=index < len(settings.chain) - 1),
            )
            caller = settings.roles[index]
            question = Attempt(
                role=step.role_arn, region=settings.region, caller=caller, external_id=bool(step.external_id), tagged=bool(tags)
            )
            keys, expires_at = await self._ask("assume_role", parameters, question, keys=keys)
        return self._credential(keys, issued_at, expires_at)

    def restore(self, prior: PriorDelivery) -> Credential | None:
        if not self._settings.exchange:
            return TokenFileCredential(self._settings, self._identity)
        keys = read_keys(prior.files["credentials"].reveal()) if "credentials" in prior.files else None
        issued_at, expires_at = prior.delivery.credential_issued_at, prior.delivery.credential_expires_at
        return self._credential(keys, issued_at, expires_at) if keys and issued_at and expires_at else None

    def _credential(self, keys: Keys, issued_at: datetime, expires_at: datetime) -> SessionCredential:
        return SessionCredential(
            keys=keys,
            issued_at=issued_at,
            expires_at=expires_at,
            role_arn=self._settings.roles[-1],
            region=self._settings.region,
            token_file=TokenFileCredential(self._settings, self._identity),
        )

    def _session(self, *, chained: bool) -> dict[str, Any]:
        """The parameters that both calls have; a session that only takes the next role is as short as AWS allows."""
        settings = self._settings
        if chained:
            return _given(RoleSessionName=self._session_name, DurationSeconds=SHORTEST.seconds)
        return _given(
            RoleSessionName=self._session_name,
            DurationSeconds=settings.duration and settings.duration.seconds,
            Policy=settings.policy,
            PolicyArns=[{"arn": arn} for arn in settings.policy_arns],
        )

    async def _ask(
        self, method: str, parameters: Mapping[str, Any], question: Attempt, *, secret: Secret | None = None, keys: Keys | None = None
    ) -> tuple[Keys, datetime]:
        """Keys and their expiry. Raises Unavailable or Rejected."""
        settings, clients = self._settings, self._toolbox.aws
        if clients is None:
            raise RuntimeError("an exchange with AWS wants `aws` in the toolbox")
        endpoint = Endpoint(url=settings.sts, region=settings.region, ca_file=settings.ca_file, proxy=settings.proxy)
        with without_context():
            try:
                answer = await clients.call(endpoint, method, parameters, whose=self._identity, keys=keys)
            except ServiceError as refused:
                secrets = [one for one in (secret, keys and keys.secret_access_key, keys and keys.session_token) if one]
                now = self._toolbox.clock.now()
                raise sort(refused, question, whose=self._identity, host=settings.sts.host, secrets=secrets, now=now) from None
            else:
                grant, now = granted(answer), self._toolbox.clock.now()
                if grant and now < grant[1] < now + ABSURD:
                    return grant
                reason = (
                    "no complete session" if not grant else "an endless session" if grant[1] > now else "a session that has ended already"
                )
                raise Unavailable(
                    f"{self._identity}: {settings.sts.host} granted {reason}", remedy="compare the clock of this machine with AWS's"
                )


def _given(**parameters: Any) -> dict[str, Any]:
    """Those that say something: AWS takes an empty one for a mistake."""
    return {name: value for name, value in parameters.items() if value}


def environment(settings: AwsSettings, identity: str, paths: Paths) -> EnvVars:
    """What makes an SDK take this identity from its files."""
    if settings.narrowed:
        return variables.shared_file(paths, region=settings.region)
    endpoint = settings.endpoint.text if settings.endpoint else None
    session = session_name(settings, identity)
    return variables.web_identity(paths, role_arn=settings.role_arn, session=session, region=settings.region, endpoint=endpoint)


def served(settings: AwsSettings, identity: str, spot: ServedAt) -> EnvVars:
    """What makes an SDK take this identity from the endpoint."""
    return variables.served(spot, identity, region=settings.region)


def trust_of(settings: AwsSettings, *, issuer: str, subject: str, claims: Collection[str]) -> Trust:
    """Whom the role and those chained to it have to trust."""
    steps = [
        Step(
            role=step.role_arn,
            external_id=f"provider.chain[{index}].externalId" if step.external_id else "",
            tagged=bool(session_tags(settings, index)),
        )
        for index, step in enumerate(settings.chain)
    ]
    return Trust(role=settings.role_arn, issuer=issuer, subject=subject, audiences=settings.audiences, tagged=TAGS in claims, steps=steps)
