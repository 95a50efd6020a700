"""The federated credential that makes Entra trust an identity.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation-create-trust
https://learn.microsoft.com/cli/azure/identity/federated-credential
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from agent.settings import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The identity that an application, or a managed identity, trusts."""

    tenant: str
    client: str
    issuer: str
    """The token's `iss`, which Entra compares byte for byte."""
    subject: str
    audiences: Sequence[str]
    cloud: str = ""
    """As `az` calls it; empty for a private one."""

    @property
    def name(self) -> str:
        """The credential's name: the same at every start, from its issuer and subject."""
        return f"wi-{digest(self.issuer, self.subject)[:8]}"

    def credential(self) -> dict[str, object]:
        """Return the credential as Microsoft Graph takes it: with one audience, no more."""
        return {"name": self.name, "issuer": self.issuer, "subject": self.subject, "audiences": list(self.audiences[:1])}

    def lines(self) -> list[str]:
        """Return commands for a shell with the rights to run them; the remarks between them are the shell's comments.

        Empty if the issuer is not a plain URL or the subject has more than one line: both come from a token, and must not
        become a command.
        """
        if not re.fullmatch(r"[\x21-\x7e]+", self.issuer) or not self.subject.isprintable():
            return []
        text = []
        if not self.issuer.startswith("https://"):
            text.append(f"# {self.issuer} is not an https URL: Entra accepts no other, and has to fetch its documents over the Internet")
        if len(self.audiences) > 1:
            text.append(f"# a federated credential has one audience: {', '.join(self.audiences[1:])} is not in it")
        if self.cloud:
            text.append(f"az cloud set --name {self.cloud}")
        audience = " ".join(map(shlex.quote, self.audiences[:1]))
        flags = f"--issuer {shlex.quote(self.issuer)} --subject {shlex.quote(self.subject)} --audiences {audience}"
        managed = f"az identity federated-credential create --name {self.name} --identity-name <name> --resource-group <group> {flags}"
        return [
            *text,
            f"az login --tenant {self.tenant}",
            "# if the client ID is an application's",
            f"az ad app federated-credential create --id {self.client} --parameters {shlex.quote(json.dumps(self.credential()))}",
            "# if it is a user-assigned managed identity's, instead of that",
            managed,
            "# its permissions, for instance",
            f"az role assignment create --assignee {self.client} --role Reader --scope <resource>",
        ]
