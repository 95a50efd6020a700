"""The request of each dialect's SDKs for a credential, and an endpoint that serves an identity in each dialect."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from agent.model import Secret
from agent.providers.gcp.credentials import AccessToken
from tests.serving import alibaba, azure
from tests.serving.endpoint import AUTHORIZATION, CANARIES, Endpoint, Reply, endpoint

OTHER = "authorization-of-another-identity"
GOOGLES = "canary-google-token"
SECRETS = (*CANARIES, *alibaba.CANARIES, azure.CANARY, GOOGLES)


@dataclass(frozen=True)
class SdkRequest:
    """A request for one identity's credential."""

    path: str
    provider: str
    headers: Mapping[str, str] = field(default_factory=dict)
    session: tuple[str, str] = ("", "")
    """Names of the headers that ask for a session token and present it."""
    authorized: bool = False


AWS, ALIBABA = "X-aws-ec2-metadata-token", "X-aliyun-ecs-metadata-token"
SDK_REQUESTS = {
    "container": SdkRequest("/aws/container/credentials", "aws", {"Authorization": AUTHORIZATION}, authorized=True),
    "imds": SdkRequest("/latest/meta-data/iam/security-credentials/role", "aws", session=(f"{AWS}-ttl-seconds", AWS)),
    "gce": SdkRequest("/computeMetadata/v1/instance/service-accounts/default/token", "gcp", {"Metadata-Flavor": "Google"}),
    "appservice": SdkRequest(
        f"/azure/appservice/token?api-version=2019-08-01&resource={azure.VAULT}",
        "azure",
        {"X-IDENTITY-HEADER": AUTHORIZATION},
        authorized=True,
    ),
    "azure-imds": SdkRequest(
        f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={azure.VAULT}", "azure", {"Metadata": "true"}
    ),
    "uri": SdkRequest(f"/alibaba/uri/{AUTHORIZATION}/credentials", "alibaba", authorized=True),
    "ecs": SdkRequest("/latest/meta-data/ram/security-credentials/role", "alibaba", session=(f"{ALIBABA}-ttl-seconds", ALIBABA)),
}
DIALECTS = list(SDK_REQUESTS)


def enrol(one: Endpoint, dialect: str, name: str = "", **more: Any) -> None:
    facts = {**azure.FACTS, "role": "role", "region": "eu-west-1", "email": "a@b.iam.gserviceaccount.com"}
    one.enrol(name or dialect, dialects=(dialect,), default=not name, facts=facts, **more)


def grant(one: Endpoint, dialect: str, name: str = "") -> None:
    name = name or dialect
    match SDK_REQUESTS[dialect].provider:
        case "aws":
            one.grant(name)
        case "azure":
            azure.grant(one, name=name)
        case "alibaba":
            alibaba.grant(one, name)
        case _:
            issued = one.clock.now()
            more: Any = {"account": "", "token_file": SimpleNamespace(files=lambda _: {})}
            expires = issued + timedelta(hours=1)
            one.hold(AccessToken(token=Secret(GOOGLES), issued_at=issued, expires_at=expires, scopes=(), **more), name)


async def ask(one: Endpoint, dialect: str, *, method: str = "GET", without: str = "", path: str = "", **more: str) -> Reply:
    """As its SDKs do, but for what is said."""
    way = SDK_REQUESTS[dialect]
    headers = {name: value for name, value in way.headers.items() if name != without}
    opens, presents = way.session
    if opens and without != presents:
        opened = await one.ask("/latest/api/token", method="PUT", authorization=None, **{opens: "60"})
        headers[presents] = opened.body.decode()
    return await one.ask(path or way.path, method=method, authorization=None, **{**headers, **more})


def clean(found: Reply) -> bool:
    return not any(secret.encode() in found.raw for secret in SECRETS)


@asynccontextmanager
async def every_dialect_served() -> AsyncIterator[Endpoint]:
    """An endpoint with an identity for each dialect, whose credential is there."""
    async with endpoint() as served:
        for dialect in DIALECTS:
            enrol(served, dialect)
            grant(served, dialect)
        yield served
