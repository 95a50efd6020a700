"""What has to be created in Azure so that Entra believes an identity: a federated credential.

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
    """Whom an application, or a managed identity, is to trust."""

    tenant: str
    client: str
    issuer: str
    """The token's `iss`, compared byte for byte."""
    subject: str
    audiences: Sequence[str]
    cloud: str = ""
    """As `az` calls it; empty for somebody's own."""

    @property
    def name(self) -> str:
        """Of the credential: the same at every start, for what it says."""
        return f"wi-{digest(self.issuer, self.subject)[:8]}"

    def credential(self) -> dict[str, object]:
        """As Microsoft Graph takes it: one audience, no more."""
        return {"name": self.name, "issuer": self.issuer, "subject": self.subject, "audiences": list(self.audiences[:1])}

    def lines(self) -> list[str]:
        """Commands for a shell with the rights to run them; the remarks between them are the shell's comments.

        None for an issuer that is no plain URL, or a subject in more than one line: both come from a token, and must not
        become a command.
        """
        if not re.fullmatch(r"[\x21-\x7e]+", self.issuer) or not self.subject.isprintable():
            return []
        text = []
        if not self.issuer.startswith("https://"):
            text.append(f"# {self.issuer} is no https URL: Entra takes no other, and has to fetch its documents over the Internet")
        if len(self.audiences) > 1:
            text.append(f"# a federated credential has one audience: {', '.join(self.audiences[1:])} is not in it")
        if self.cloud:
            text.append(f"az cloud set --name {self.cloud}")
        audience = " ".join(map(shlex.quote, self.audiences[:1]))
        told = f"--issuer {shlex.quote(self.issuer)} --subject {shlex.quote(self.subject)} --audiences {audience}"
        managed = f"az identity federated-credential create --name {self.name} --identity-name <name> --resource-group <group> {told}"
        return [
            *text,
            f"az login --tenant {self.tenant}",
            "# where the client ID is an application's",
            f"az ad app federated-credential create --id {self.client} --parameters {shlex.quote(json.dumps(self.credential()))}",
            "# where it is a user-assigned managed identity's, in place of that",
            managed,
            "# and what it may do, for instance",
            f"az role assignment create --assignee {self.client} --role Reader --scope <resource>",
        ]
