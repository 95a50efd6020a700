"""The access tokens of Entra, and the files that lead an SDK there: as files hold them, as the metadata dialects serve them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from agent.model import Paths, Secret
from agent.providers.azure import environment
from agent.providers.azure.settings import AzureSettings
from agent.providers.exchange import TokenFileCredential


def token_file(settings: AzureSettings) -> TokenFileCredential:
    """Return the files for an SDK that does the exchange itself."""

    def files(paths: Paths) -> Mapping[str, Secret]:
        who: dict[str, Any] = {"tenant": settings.tenant_id, "client": settings.client_id, "authority": settings.authority}
        dotenv = settings.format == "dotenv"
        text = environment.dotenv(environment.token_file(paths, **who)) if dotenv else environment.azure_json(paths, **who)
        config = {
            "tenantID": settings.tenant_id,
            "clientID": settings.client_id,
            "authority": settings.authority.url,
            "audiences": settings.audiences,
            **({"scopes": settings.kept} if settings.exchange else {}),
        }
        return {"credentialsFile": Secret(text), "config": Secret(msgspec.json.encode(config).decode())}

    return TokenFileCredential(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An access token for one resource. It is not stored in a file: no SDK of Azure's reads one."""

    value: Secret
    issued_at: datetime
    expires_at: datetime
    resource: str
    token_file: TokenFileCredential
    client_id: str

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return self.token_file.files(paths)

    def document(self) -> Mapping[str, Any]:
        return {
            "access_token": self.value,
            "expires_on": self.expires_at,
            "not_before": self.issued_at,
            "resource": self.resource,
            "token_type": "Bearer",
            "client_id": self.client_id,
        }
