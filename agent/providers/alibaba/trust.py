"""The OIDC provider and the role's trust policy that make Alibaba's STS trust an identity.

https://www.alibabacloud.com/help/en/ram/user-guide/manage-an-oidc-idp
https://www.alibabacloud.com/help/en/ram/user-guide/create-a-ram-role-for-a-trusted-idp
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The identity that the role trusts."""

    role: str
    """Its ARN."""
    provider: str
    """The ARN of the OIDC provider."""
    issuer: str
    """The token's `iss`, which Alibaba compares byte for byte."""
    subject: str
    audiences: Sequence[str]

    def policy(self) -> dict[str, Any]:
        """Return the role's trust policy. All three conditions: without `sub` every workload of the issuer could assume the role."""
        equal = {"oidc:iss": [self.issuer], "oidc:aud": list(self.audiences), "oidc:sub": [self.subject]}
        principal = {"Federated": [self.provider]}
        statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal, "Condition": {"StringEquals": equal}}
        return {"Version": "1", "Statement": [statement]}

    def lines(self) -> list[str]:
        """Return commands for a shell with the rights to run them; the remarks between them are the shell's comments.

        Empty if the issuer is not a plain URL: it comes from a token, and must not become a command.
        """
        if not re.fullmatch(r"[\x21-\x7e]+", self.issuer):
            return []
        role, provider = self.role.rpartition("/")[2], self.provider.rpartition("/")[2]
        host = urlsplit(self.issuer).hostname or ""
        text = [f"# once for each account: the issuer as the OIDC provider {self.provider}"]
        if not self.issuer.startswith("https://"):
            text.append(f"# {self.issuer} is not an https URL: RAM accepts no other, and has to fetch its documents over the Internet")
        create = f"aliyun ims CreateOIDCProvider --OIDCProviderName {provider} --IssuerUrl {shlex.quote(self.issuer)}"
        policy = f'"$(cat {role}.trust.json)"'
        return [
            *text,
            f"# FINGERPRINT: the SHA-1 of the certificate of the authority behind {host}, in hex without colons",
            f'{create} --ClientIds {shlex.quote(",".join(self.audiences))} --Fingerprints "$FINGERPRINT"',
            "# the role, trusting this identity and no other",
            f"cat > {role}.trust.json <<'POLICY'",
            *json.dumps(self.policy(), indent=2).splitlines(),
            "POLICY",
            f"aliyun ram CreateRole --RoleName {role} --AssumeRolePolicyDocument {policy}",
            f"# if {role} exists already: aliyun ram UpdateRole --RoleName {role} --NewAssumeRolePolicyDocument {policy}",
            "# its permissions, for instance",
            f"aliyun ram AttachPolicyToRole --PolicyType System --PolicyName AliyunOSSReadOnlyAccess --RoleName {role}",
        ]
