"""The OIDC provider and the roles' trust policies that make AWS STS trust an identity.

https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_create_for-idp_oidc.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_iam-condition-keys.html#condition-keys-wif
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERSION = "2012-10-17"
"""Of the policy language; the only usable one."""
TAGS = "https://aws.amazon.com/tags"
"""The claim with which a token sets session tags; the role has to allow it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A role that the agent assumes with the session of the role before it."""

    role: str
    external_id: str = ""
    """Its key, such as `provider.chain[0].externalId`; never its value. Empty if there is none."""
    tagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The identity that the first role trusts, and the roles after it."""

    role: str
    """Its ARN."""
    issuer: str
    """The token's `iss`."""
    subject: str
    audiences: Sequence[str]
    tagged: bool = False
    """Whether the token carries session tags."""
    steps: Sequence[Step] = ()

    @property
    def provider(self) -> str:
        """IAM's name of the issuer: without its scheme."""
        return (self.issuer.partition("://")[2] or self.issuer).rstrip("/")

    def policy(self) -> dict[str, Any]:
        """Return the first role's trust policy. Both conditions: without `sub` every workload of the issuer could assume the role."""
        _, partition, _, _, account, _ = self.role.split(":", 5)
        return _policy(
            {"Federated": f"arn:{partition}:iam::{account}:oidc-provider/{self.provider}"},
            _actions("AssumeRoleWithWebIdentity", tagged=self.tagged),
            {f"{self.provider}:aud": _one_or_all(self.audiences), f"{self.provider}:sub": self.subject},
        )

    def lines(self) -> list[str]:
        """Return commands for a shell with the rights to run them; the remarks between them are the shell's comments.

        Empty if the issuer is not a plain URL: it comes from a token, and must not become a command.
        """
        if not re.fullmatch(r"[\x21-\x7e]+", self.issuer):
            return []
        first = _role_name(self.role)
        text = ["# once for each account: the issuer as an IAM OIDC provider"]
        if not self.issuer.startswith("https://"):
            text.append(f"# {self.issuer} is not an https URL: IAM accepts no other, and AWS has to fetch its documents over the Internet")
        text.append(
            f"aws iam create-open-id-connect-provider --url {shlex.quote(f'https://{self.provider}')}"
            f" --client-id-list {' '.join(shlex.quote(one) for one in self.audiences)}"
        )
        text += ["# the role, trusting this identity and no other", *_role(self.role, self.policy())]
        before = self.role
        for step in self.steps:
            condition = {"sts:ExternalId": f"<{step.external_id}>"} if step.external_id else {}
            policy = _policy({"AWS": before}, _actions("AssumeRole", tagged=step.tagged), condition)
            text += [f"# the next role, trusting the one before; a policy of {_role_name(before)} has to allow sts:AssumeRole on it too"]
            text += _role(step.role, policy)
            before = step.role
        update = f"aws iam update-assume-role-policy --role-name {first} --policy-document file://{first}.trust.json"
        text.append(f"# if {first} exists already: {update}")
        return text


def _role(arn: str, policy: dict[str, Any]) -> list[str]:
    name = _role_name(arn)
    path = arn.split(":role", 1)[1].removesuffix(name)
    document = json.dumps(policy, indent=2).splitlines()
    where = f" --path {path}" if path != "/" else ""
    return [
        f"cat > {name}.trust.json <<'POLICY'",
        *document,
        "POLICY",
        f"aws iam create-role --role-name {name}{where} --assume-role-policy-document file://{name}.trust.json",
    ]


def _role_name(arn: str) -> str:
    return arn.rpartition("/")[2]


def _policy(principal: dict[str, str], actions: str | list[str], equal: dict[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = {"Effect": "Allow", "Principal": principal, "Action": actions}
    if equal:
        statement["Condition"] = {"StringEquals": equal}
    return {"Version": VERSION, "Statement": [statement]}


def _actions(action: str, *, tagged: bool) -> str | list[str]:
    return [f"sts:{action}", "sts:TagSession"] if tagged else f"sts:{action}"


def _one_or_all(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)
