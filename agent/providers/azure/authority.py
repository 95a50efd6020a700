"""The Microsoft Entra ID to ask: one of the national clouds, or a private one.

https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud
"""

import re
from dataclasses import dataclass
from typing import Self

from agent.settings import Scalar, Url, scalar


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud that Microsoft runs, or 21Vianet in China."""

    host: str
    """As azure-identity's AzureAuthorityHosts has it."""
    management: str
    """Azure Resource Manager: the resource of a token if no scope is configured."""
    name: str
    """As the Kubernetes cloud provider calls it."""
    az: str
    """As `az cloud set` calls it."""


CLOUDS = {
    "public": Cloud("login.microsoftonline.com", "https://management.azure.com", "AzurePublicCloud", "AzureCloud"),
    "usgovernment": Cloud(
        "login.microsoftonline.us", "https://management.usgovcloudapi.net", "AzureUSGovernmentCloud", "AzureUSGovernment"
    ),
    "china": Cloud("login.chinacloudapi.cn", "https://management.chinacloudapi.cn", "AzureChinaCloud", "AzureChinaCloud"),
}


@scalar
class Authority(Scalar):
    """`public`, `usgovernment`, `china`, or the https URL of another; azure-identity refuses http."""

    url: str
    """Scheme, host and port, without a slash at the end."""
    pattern = r"^(public|usgovernment|china|https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?/?)$(?!\n)"
    allowed = "public, usgovernment, china, or https://HOST without user, path, or dot at the end"

    @classmethod
    def parse(cls, text: str) -> Self:
        if not re.fullmatch(cls.pattern, text, re.ASCII):
            raise ValueError(f"not an authority that can be used: write {cls.allowed}")
        if text in CLOUDS:
            return cls(f"https://{CLOUDS[text].host}")
        return cls(Url.parse(text).text.rstrip("/").lower())

    @property
    def cloud(self) -> Cloud | None:
        """The cloud of this authority; None for a private one."""
        return next((cloud for cloud in CLOUDS.values() if f"https://{cloud.host}" == self.url), None)

    def __str__(self) -> str:
        return self.url
