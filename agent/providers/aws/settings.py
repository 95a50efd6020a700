"""What an operator says of a role in AWS, and what of it cannot be so.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
"""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from agent.http.endpoint import refused
from agent.providers.aws.regions import partition, sts_host
from agent.settings import Duration, Settings, Url

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
    yield from refused(settings.endpoint, settings.proxy, by="STS")


def _session_faults(settings: AwsSettings) -> Iterator[tuple[str, str]]:
    longest = LONGEST_CHAINED if settings.chain else LONGEST
    if settings.duration and not SHORTEST.seconds <= settings.duration.seconds <= longest.seconds:
        yield "duration", f"is {settings.duration}: AWS allows {SHORTEST} to {longest}{' where there is a chain' if settings.chain else ''}"
    if settings.session_tags and not settings.chain:
        yield "sessionTags", "needs a chain: without one, the session's tags are what the token's claim https://aws.amazon.com/tags says"
    for index, step in enumerate(settings.chain):
        if unknown := set(step.transitive_tags) - set(session_tags(settings, index)):
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


def session_tags(settings: AwsSettings, index: int) -> dict[str, str]:
    """Of a step of the chain; the identity's own are of the last."""
    own = settings.session_tags if index == len(settings.chain) - 1 else {}
    return settings.chain[index].session_tags | own


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
