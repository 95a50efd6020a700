"""The settings of a role in AWS, the rules between them, and what follows from them.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

import msgspec

from agent.envvars import EnvVars, ServedAt
from agent.http.endpoint import refused
from agent.model import Paths
from agent.providers.aws import environment
from agent.providers.aws.regions import partition, sts_host
from agent.providers.aws.trust import TAGS, Step, Trust
from agent.providers.exchange import session_name
from agent.providers.settings import CloudDefaults
from agent.settings import Duration, Settings, Url

RoleArn = Annotated[str, msgspec.Meta(pattern=r"^arn:aws[a-z0-9-]*:iam::[0-9]{12}:role(/[A-Za-z0-9_+=,.@-]+)+$(?!\n)", max_length=2048)]
PolicyArn = Annotated[
    str, msgspec.Meta(pattern=r"^arn:aws[a-z0-9-]*:iam::([0-9]{12}|aws):policy(/[A-Za-z0-9_+=,.@-]+)+$(?!\n)", max_length=2048)
]
Region = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z0-9]+)+$(?!\n)", max_length=64)]
TagKey = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Tags = Annotated[dict[TagKey, Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=50)]
MIN_SESSION, MAX_SESSION, MAX_CHAINED_SESSION = Duration(900), Duration(43200), Duration(3600)
"""The `DurationSeconds` that AWS allows; a session of a role that was assumed with another role's session lasts an hour at most."""


class ChainedRole(Settings):
    """A role to assume with the session of the role before it."""

    role_arn: RoleArn
    external_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$(?!\n)")] | None = None
    session_tags: Tags = {}
    transitive_tags: Annotated[tuple[TagKey, ...], msgspec.Meta(max_length=50)] = ()
    """Keys of the tags that also hold for the roles after it."""


class AwsSettings(CloudDefaults, tag="aws", tag_field="type"):
    """The role to assume, and where. `duration`, `policy`, `policyArns` and `sessionTags` are of the last role, which the workload gets."""

    annotation_keys: ClassVar[Mapping[str, str]] = MappingProxyType({"eks.amazonaws.com/role-arn": "roleArn"})
    """As EKS' own webhook reads them (aws/amazon-eks-pod-identity-webhook)."""
    principal_key: ClassVar[str] = "roleArn"
    credential_noun: ClassVar[str] = "a session"

    region: Region
    role_arn: RoleArn = ""
    """Empty only with `fromServiceAccount`: an annotation names it."""
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
        """The STS that is asked."""
        return self.endpoint or Url(f"https://{sts_host(self.region)}")

    @property
    def roles(self) -> tuple[str, ...]:
        """From the role that the token is for to the role that the workload gets."""
        return (self.role_arn, *(step.role_arn for step in self.chain))

    @property
    def principal(self) -> str:
        return self.roles[-1]

    @property
    def configured_principal(self) -> str:
        return self.role_arn

    @property
    def requested_lifetime(self) -> Duration | None:
        return self.duration

    @property
    def narrowed(self) -> bool:
        """Whether the agent's exchange gives another session than an SDK would get by itself with the token."""
        return bool(self.chain or self.policy or self.policy_arns)

    def session(self, identity: str) -> str:
        """Return the session name: the configured one, or one that CloudTrail shows as one actor over every start."""
        return self.session_name or session_name(identity, self.role_arn, forbidden=r"[^A-Za-z0-9_+=,.@-]")

    def tags(self, index: int) -> dict[str, str]:
        """Return the session tags of a step of the chain; the identity's own are of the last."""
        own = self.session_tags if index == len(self.chain) - 1 else {}
        return self.chain[index].session_tags | own

    def faults(self) -> Iterator[tuple[str, str]]:
        yield from self._session_faults()
        if not self.role_arn and not self.from_service_account:
            yield "roleArn", "missing: write an IAM role such as arn:aws:iam::123456789012:role/web, or fromServiceAccount: true"
        for role in filter(None, self.roles):
            if role.split(":")[1] != partition(self.region):
                yield "region", f"{self.region} is in the partition {partition(self.region)}, and {role} is not"
        yield from refused(self.endpoint, self.proxy, by="STS")

    def _session_faults(self) -> Iterator[tuple[str, str]]:
        longest = MAX_CHAINED_SESSION if self.chain else MAX_SESSION
        if self.duration and not MIN_SESSION.seconds <= self.duration.seconds <= longest.seconds:
            yield "duration", f"is {self.duration}: AWS allows {MIN_SESSION} to {longest}{' for a chain' if self.chain else ''}"
        if self.session_tags and not self.chain:
            yield "sessionTags", "needs a chain: without one, the token's claim https://aws.amazon.com/tags sets the session's tags"
        for index, step in enumerate(self.chain):
            if unknown := set(step.transitive_tags) - set(self.tags(index)):
                yield f"chain[{index}].transitiveTags", f"has {', '.join(sorted(unknown))}, not among the session tags of that role"
        if self.policy and not _is_object(self.policy):
            yield "policy", "is not a JSON object: write the session policy as JSON text"
        if not self.exchange and (self.narrowed or self.duration):
            yield (
                "exchange",
                "is false, and an SDK that does the exchange itself takes no chain, policy, policyArns or duration from its files",
            )

    def environment(self, identity: str, paths: Paths) -> EnvVars:
        if self.narrowed:
            return environment.shared_file(paths, region=self.region)
        endpoint = self.endpoint.text if self.endpoint else None
        return environment.web_identity(
            paths, role_arn=self.role_arn, session=self.session(identity), region=self.region, endpoint=endpoint
        )

    def served(self, identity: str, at: ServedAt) -> EnvVars:
        return environment.served(at, identity, region=self.region)

    def trust(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Trust:
        """Return the trust that the role, and the roles chained to it, need."""
        steps = [
            Step(
                role=step.role_arn,
                external_id=f"provider.chain[{index}].externalId" if step.external_id else "",
                tagged=bool(self.tags(index)),
            )
            for index, step in enumerate(self.chain)
        ]
        return Trust(role=self.role_arn, issuer=issuer, subject=subject, audiences=self.audiences, tagged=TAGS in claims, steps=steps)

    def trust_commands(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
        return self.trust(issuer=issuer, subject=subject, claims=claims).lines()

    def facts(self) -> Mapping[str, str]:
        """A role's path is not part of its name. Without a role there is only the region."""
        role = self.principal
        if not role:
            return {"region": self.region}
        _, partition_id, _, _, account, _ = role.split(":", 5)
        return {"role": role.rpartition("/")[2], "account": account, "partition": partition_id, "region": self.region}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
