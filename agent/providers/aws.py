"""Amazon Web Services: STS AssumeRoleWithWebIdentity and AssumeRole, and the files and variables its SDKs read.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
https://docs.aws.amazon.com/sdkref/latest/guide/access-assume-role-web.html
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from agent.aws import variables
from agent.aws.credential import Keys, SessionCredential, granted, read_keys
from agent.aws.refusals import Question, RefusedError, sort
from agent.aws.regions import partition, sts_host
from agent.aws.transport import Endpoint
from agent.aws.trust import TAGS, Step, Trust
from agent.errors import Rejected, Unavailable
from agent.model import Credential, IdentityToken, Legacy, Paths, Secret
from agent.settings import Address, Duration, Settings, Url
from agent.toolbox import Toolbox
from agent.variables import Spot, Variables

RoleArn = Annotated[str, msgspec.Meta(pattern=r"^arn:aws[a-z0-9-]*:iam::[0-9]{12}:role(/[A-Za-z0-9_+=,.@-]+)+$(?!\n)", max_length=2048)]
PolicyArn = Annotated[
    str, msgspec.Meta(pattern=r"^arn:aws[a-z0-9-]*:iam::([0-9]{12}|aws):policy(/[A-Za-z0-9_+=,.@-]+)+$(?!\n)", max_length=2048)
]
Region = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$(?!\n)", max_length=64)]
TagKey = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Tags = Annotated[dict[TagKey, Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=50)]
ANNOTATIONS = {"eks.amazonaws.com/role-arn": "roleArn"}
"""Of a ServiceAccount, as EKS' own webhook reads them (aws/amazon-eks-pod-identity-webhook), by what they set."""
SHORTEST, LONGEST, LONGEST_CHAINED = Duration(900), Duration(43200), Duration(3600)
"""What AWS allows `DurationSeconds` to be; for a role that was taken with another role's session, at most an hour."""
ABSURD = timedelta(days=3650)
"""A session that claims to last longer is none of STS's, which last for twelve hours at most."""


class ChainedRole(Settings):
    """A role to take with the session of the role before it."""

    role_arn: RoleArn
    external_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$(?!\n)")] | None = None
    session_tags: Tags = {}
    transitive_tags: Annotated[tuple[TagKey, ...], msgspec.Meta(max_length=50)] = ()
    """Keys of those tags that hold for the roles after it, too."""


class AwsSettings(Settings, tag="aws", tag_field="type"):
    """The role to take, and where. `duration`, `policy`, `policyArns` and `sessionTags` are of the last role, which the workload gets."""

    region: Region
    role_arn: RoleArn = ""
    """Empty only with `fromServiceAccount`, where an annotation says it."""
    from_service_account: bool = False
    session_name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_+=,.@-]{2,64}$(?!\n)")] | None = None
    duration: Duration | None = None
    """None leaves it to AWS: one hour."""
    policy: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)] | None = None
    """A session policy as JSON text: the session may do what role and policy both allow."""
    policy_arns: Annotated[tuple[PolicyArn, ...], msgspec.Meta(max_length=10)] = ()
    session_tags: Tags = {}
    chain: Annotated[tuple[ChainedRole, ...], msgspec.Meta(max_length=8)] = ()
    audiences: tuple[str, ...] = ("sts.amazonaws.com",)
    exchange: bool = True
    endpoint: Url | None = None
    """None: STS of the region."""
    ca_file: str | None = None
    proxy: Url | None = None

    @property
    def sts(self) -> Url:
        """Who is asked."""
        return self.endpoint or Url(f"https://{sts_host(self.region)}")

    @property
    def roles(self) -> tuple[str, ...]:
        """From the one that the token is for to the one that the workload gets."""
        return (self.role_arn, *(step.role_arn for step in self.chain))

    @property
    def narrowed(self) -> bool:
        """Whether the agent's exchange gives another session than an SDK would get by itself with the token."""
        return bool(self.chain or self.policy or self.policy_arns)


def faults(settings: AwsSettings) -> Iterator[tuple[str, str]]:
    """What is wrong between the settings: the field, and what is allowed."""
    yield from _session_faults(settings)
    if not settings.role_arn and not settings.from_service_account:
        yield "roleArn", "missing: write an IAM role such as arn:aws:iam::123456789012:role/web, or fromServiceAccount: true"
    for role in filter(None, settings.roles):
        if role.split(":")[1] != partition(settings.region):
            yield "region", f"{settings.region} is in the partition {partition(settings.region)}, where {role} is not"
    endpoint = settings.endpoint
    if endpoint and endpoint.shown != endpoint.text:
        yield "endpoint", "holds a user or password, which STS does not take"
    if endpoint and endpoint.scheme == "http" and not Address(endpoint.hostname, 0).loopback:
        yield "endpoint", "would send the token in the clear: write https://, or http:// with a loopback address"
    if endpoint and endpoint.scheme == "http" and settings.proxy:
        yield "proxy", "would see the token, because the endpoint is http://: write https:// there, or leave the proxy out"


def _session_faults(settings: AwsSettings) -> Iterator[tuple[str, str]]:
    longest = LONGEST_CHAINED if settings.chain else LONGEST
    if settings.duration and not SHORTEST.seconds <= settings.duration.seconds <= longest.seconds:
        yield "duration", f"is {settings.duration}: AWS allows {SHORTEST} to {longest}{' where there is a chain' if settings.chain else ''}"
    if settings.session_tags and not settings.chain:
        yield "sessionTags", "needs a chain: without one, the session's tags are what the token's claim https://aws.amazon.com/tags says"
    for index, step in enumerate(settings.chain):
        if unknown := set(step.transitive_tags) - set(_tags(settings, index)):
            yield f"chain[{index}].transitiveTags", f"has {', '.join(sorted(unknown))}, not among the session tags of that role"
    if settings.policy and not _is_object(settings.policy):
        yield "policy", "is not a JSON object: write the session policy as JSON text"
    if not settings.exchange and (settings.narrowed or settings.duration):
        yield "exchange", "is false, and an SDK that does the exchange itself takes no chain, policy, policyArns or duration from its files"


def session_name(settings: AwsSettings, identity: str) -> str:
    """The configured one, or one that is the same at every start, so that CloudTrail shows one actor; at most 64 characters."""
    if settings.session_name:
        return settings.session_name
    tail = hashlib.sha256(f"{identity}\0{settings.role_arn}".encode()).hexdigest()[:8]
    return f"wi-{re.sub(r'[^A-Za-z0-9_+=,.@-]', '-', identity)[:52]}-{tail}"


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
            Question(role=settings.role_arn, region=settings.region, issuer=token.issuer, subject=token.subject, audiences=token.audiences),
            secret=token.value,
        )
        for index, step in enumerate(settings.chain):
            issued_at = self._toolbox.clock.now()
            tags = _tags(settings, index)
            parameters = _given(
                RoleArn=step.role_arn,
                ExternalId=step.external_id,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                TransitiveTagKeys=list(step.transitive_tags),
                **self._session(chained=index < len(settings.chain) - 1),
            )
            caller = settings.roles[index]
            question = Question(
                role=step.role_arn, region=settings.region, caller=caller, external_id=bool(step.external_id), tagged=bool(tags)
            )
            keys, expires_at = await self._ask("assume_role", parameters, question, keys=keys)
        return self._credential(keys, issued_at, expires_at)

    def restore(self, legacy: Legacy) -> Credential | None:
        if not self._settings.exchange:
            return TokenFileCredential(self._settings, self._identity)
        keys = read_keys(legacy.files["credentials"].reveal()) if "credentials" in legacy.files else None
        issued_at, expires_at = legacy.delivery.credential_issued_at, legacy.delivery.credential_expires_at
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
        self, method: str, parameters: Mapping[str, Any], question: Question, *, secret: Secret | None = None, keys: Keys | None = None
    ) -> tuple[Keys, datetime]:
        """Keys and their expiry. Raises Unavailable or Rejected."""
        settings, clients = self._settings, self._toolbox.aws
        if clients is None:
            raise RuntimeError("an exchange with AWS wants `aws` in the toolbox")
        endpoint = Endpoint(url=settings.sts, region=settings.region, ca_file=settings.ca_file, proxy=settings.proxy)
        try:
            answer = await clients.call(endpoint, method, parameters, whose=self._identity, keys=keys)
        except RefusedError as refused:
            secrets = [one for one in (secret, keys and keys.secret_access_key, keys and keys.session_token) if one]
            failure = sort(refused, question, whose=self._identity, host=settings.sts.host, secrets=secrets, now=self._toolbox.clock.now())
        else:
            grant, now = granted(answer), self._toolbox.clock.now()
            if grant and now < grant[1] < now + ABSURD:
                return grant
            reason = "no complete session" if not grant else "an endless session" if grant[1] > now else "a session that has ended already"
            failure = Unavailable(
                f"{self._identity}: {settings.sts.host} granted {reason}", remedy="compare the clock of this machine with AWS's"
            )
        raise failure  # outside, so that it carries no context to be printed


def _tags(settings: AwsSettings, index: int) -> dict[str, str]:
    """Of a step of the chain; the identity's own are of the last."""
    own = settings.session_tags if index == len(settings.chain) - 1 else {}
    return settings.chain[index].session_tags | own


def _given(**parameters: Any) -> dict[str, Any]:
    """Those that say something: AWS takes an empty one for a mistake."""
    return {name: value for name, value in parameters.items() if value}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def environment(settings: AwsSettings, identity: str, paths: Paths) -> Variables:
    """What makes an SDK take this identity from its files."""
    if settings.narrowed:
        return variables.shared_file(paths, region=settings.region)
    endpoint = settings.endpoint.text if settings.endpoint else None
    session = session_name(settings, identity)
    return variables.web_identity(paths, role_arn=settings.role_arn, session=session, region=settings.region, endpoint=endpoint)


def served(settings: AwsSettings, identity: str, spot: Spot) -> Variables:
    """What makes an SDK take this identity from the endpoint."""
    return variables.served(spot, identity, region=settings.region)


def trust_of(settings: AwsSettings, *, issuer: str, subject: str, claims: Collection[str]) -> Trust:
    """Whom the role and those chained to it have to trust."""
    steps = [
        Step(
            role=step.role_arn,
            external_id=f"provider.chain[{index}].externalId" if step.external_id else "",
            tagged=bool(_tags(settings, index)),
        )
        for index, step in enumerate(settings.chain)
    ]
    return Trust(role=settings.role_arn, issuer=issuer, subject=subject, audiences=settings.audiences, tagged=TAGS in claims, steps=steps)
