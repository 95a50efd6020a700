"""Google's metadata server, request by request."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from agent.errors import Rejected, Unavailable
from agent.model import Key, Secret
from agent.providers.gcp.credentials import AccessToken, IdToken
from agent.providers.gcp.settings import CLOUD_PLATFORM, EMAIL
from agent.serving.dialects.gce import Gce
from agent.store import VARIANTS
from tests.fakes import FakeClock
from tests.serving.endpoint import NAME, Endpoint, Reply, endpoint

V1 = "/computeMetadata/v1/"
ACCOUNT = "app@example.iam.gserviceaccount.com"
DEFAULT = f"{V1}instance/service-accounts/default/"
READ, WRITE = "https://www.googleapis.com/auth/devstorage.read_only", "https://www.googleapis.com/auth/devstorage.read_write"
CANARY = "ya29.canary"
FACTS = {
    "project-id": "example",
    "project-number": "123456789012",
    "zone": "europe-west1-b",
    "universe-domain": "googleapis.com",
    "cluster-name": "demo",
    "cluster-location": "europe-west1",
    "account": ACCOUNT,
    "email": ACCOUNT,
    "scopes": f"{CLOUD_PLATFORM} {EMAIL}",
}


@pytest.fixture
async def one() -> AsyncIterator[Endpoint]:
    async with endpoint(None, FakeClock()) as served:
        enrol(served)
        served.hold(token(served))
        yield served


def enrol(one: Endpoint, name: str = NAME, **facts: str) -> None:
    one.enrol(name, dialects=("gce",), default=True, margin=300.0, facts={key: value for key, value in (FACTS | facts).items() if value})


def token(one: Endpoint, text: str = CANARY, lifetime: float = 3600.0) -> AccessToken:
    issued, nowhere = one.clock.now(), SimpleNamespace(files=lambda _: {})
    more: Any = {"account": "", "token_file": nowhere}
    return AccessToken(token=Secret(text), issued_at=issued, expires_at=issued + timedelta(seconds=lifetime), scopes=(), **more)


def id_token(one: Endpoint, audience: str) -> IdToken:
    issued, nowhere = one.clock.now(), SimpleNamespace(files=lambda _: {})
    more: Any = {"audience": audience, "account": ACCOUNT, "token_file": nowhere}
    return IdToken(token=Secret(f"signed-by-google-for-{audience}"), issued_at=issued, expires_at=issued + timedelta(hours=1), **more)


async def get(one: Endpoint, path: str, flavor: str | None = "Google", method: str = "GET", **headers: str) -> Reply:
    more = {"Metadata-Flavor": flavor} if flavor is not None else {}
    found = await one.ask(path, method=method, authorization=None, **more, **headers)
    assert found.headers["metadata-flavor"] == "Google", "in every answer"
    assert found.status == 200 or CANARY.encode() not in found.raw
    return found


async def test_a_token_says_how_many_seconds_are_left_of_it(one: Endpoint) -> None:
    found = await get(one, f"{DEFAULT}token")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert found.json == {"access_token": CANARY, "expires_in": 3600, "token_type": "Bearer"}
    one.clock.jump(599.5)  # type: ignore[attr-defined]
    assert (await get(one, f"{DEFAULT}token")).json["expires_in"] == 3000, "never more than is left"


@pytest.mark.parametrize("account", ["default", ACCOUNT, ACCOUNT.replace("@", "%40")])
async def test_an_account_goes_by_its_email_too(one: Endpoint, account: str) -> None:
    assert (await get(one, f"{V1}instance/service-accounts/{account}/token")).status == 200
    assert (await get(one, f"{V1}instance/service-accounts/{account}/email")).body.decode() == ACCOUNT


@pytest.mark.parametrize("path", ["token", "identity?audience=a", "email", ""])
async def test_another_account_is_404(one: Endpoint, path: str) -> None:
    assert (await get(one, f"{V1}instance/service-accounts/other@example.iam.gserviceaccount.com/{path}")).status == 404


@pytest.mark.parametrize("path", [f"{DEFAULT}token", V1, f"{V1}project/project-id", "/computeMetadata/", "/computeMetadata/v1"])
@pytest.mark.parametrize("flavor", [None, "", "google", "GOOGLE", "Google, Google"])
async def test_without_the_header_nothing_but_the_root_is_answered(one: Endpoint, path: str, flavor: str | None) -> None:
    found = await get(one, path, flavor)
    assert found.status == 403
    assert 'Missing required header "Metadata-Flavor": "Google"' in found.body.decode()


async def test_the_root_answers_a_ping_and_the_old_header_is_known(one: Endpoint) -> None:
    found = await get(one, "/", None)
    assert (found.status, found.body) == (200, b"computeMetadata/\n")
    assert (await get(one, f"{DEFAULT}token", None, X_Google_Metadata_Request="True")).status == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-Ip"])
@pytest.mark.parametrize("path", ["/", f"{DEFAULT}token", f"{V1}project/project-id"])
async def test_what_was_forwarded_is_refused_with_403(one: Endpoint, header: str, path: str) -> None:
    assert (await get(one, path, **{header: "10.0.0.1"})).status == 403


@pytest.mark.parametrize("host", ["metadata.google.internal", "metadata.google.internal.", "metadata", "169.254.169.254", "[fd20:ce::254]"])
async def test_its_names_are_known(one: Endpoint, host: str) -> None:
    raw = f"GET {DEFAULT}token HTTP/1.1\r\nHost: {host}\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
    assert (await one.send(raw.encode())).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_other_methods_are_405(one: Endpoint, method: str) -> None:
    assert (await get(one, f"{DEFAULT}token", method=method)).status == 405


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/computeMetadata/", "v1/\n"),
        (V1, "instance/\nproject/\nuniverse/\n"),
        (f"{V1}instance/", "attributes/\nregion\nservice-accounts/\nzone\n"),
        (f"{V1}instance/attributes/", "cluster-location\ncluster-name\n"),
        (f"{V1}instance/service-accounts/", f"{ACCOUNT}/\ndefault/\n"),
        (DEFAULT, "aliases\nemail\nidentity\nscopes\ntoken\n"),
        (f"{DEFAULT}email", ACCOUNT),
        (f"{DEFAULT}aliases", "default\n"),
        (f"{DEFAULT}scopes", f"{CLOUD_PLATFORM}\n{EMAIL}\n"),
        (f"{V1}project/", "attributes/\nnumeric-project-id\nproject-id\n"),
        (f"{V1}project/project-id", "example"),
        (f"{V1}project/numeric-project-id", "123456789012"),
        (f"{V1}universe/universe-domain", "googleapis.com"),
        (f"{V1}universe/universe_domain", "googleapis.com"),
        (f"{V1}universe/", "universe-domain\n"),
        (f"{V1}instance/zone", "projects/123456789012/zones/europe-west1-b"),
        (f"{V1}instance/region", "projects/123456789012/regions/europe-west1"),
        (f"{V1}instance/attributes/cluster-name", "demo"),
        (f"{V1}instance/attributes/cluster-location", "europe-west1"),
        (f"{V1}project/project-id?alt=text", "example"),
    ],
)
async def test_what_sdks_and_gcloud_read(one: Endpoint, path: str, body: str) -> None:
    found = await get(one, path)
    assert (found.status, found.headers["content-type"], found.body.decode()) == (200, "application/text", body)
    assert len(found.headers.get("etag", "0" * 16)) == 16


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("project/project-id?alt=json", "example"),
        ("project/numeric-project-id?alt=json", 123456789012),
        ("instance/service-accounts/default/scopes?alt=json", [CLOUD_PLATFORM, EMAIL]),
        (
            "instance/service-accounts/default/?recursive=true",
            {"aliases": ["default"], "email": ACCOUNT, "scopes": [CLOUD_PLATFORM, EMAIL]},
        ),
        ("instance/attributes/?recursive=True", {"cluster-location": "europe-west1", "cluster-name": "demo"}),
        ("project/?recursive=true&alt=json", {"attributes": {}, "numericProjectId": 123456789012, "projectId": "example"}),
        ("universe/?recursive=true", {"universeDomain": "googleapis.com"}),
    ],
)
async def test_json_is_called_so_and_holds_no_token(one: Endpoint, path: str, value: object) -> None:
    found = await get(one, V1 + path)
    assert (found.status, found.headers["content-type"], json.loads(found.body)) == (200, "application/json", value)


async def test_all_of_it_at_once_has_names_in_camel_case_and_no_token(one: Endpoint) -> None:
    found = (await get(one, f"{V1}?recursive=true")).json
    assert set(found) == {"instance", "project", "universe"}
    assert set(found["instance"]["serviceAccounts"]) == {"default", ACCOUNT}
    assert "token" not in json.dumps(found)
    flat = (await get(one, f"{V1}instance/service-accounts/default/?recursive=true&alt=text")).body.decode()
    assert flat == f"aliases default\nemail {ACCOUNT}\nscopes {CLOUD_PLATFORM}\nscopes {EMAIL}\n"
    assert one.counters.handed_out_valid == {}


@pytest.mark.parametrize(
    "path", ["/computeMetadata", "/computeMetadata/v1", f"{V1}instance", f"{V1}instance/service-accounts/default", f"{V1}project"]
)
async def test_a_directory_without_its_slash_leads_to_the_one_with_it(one: Endpoint, path: str) -> None:
    found = await get(one, f"{path}?recursive=true")
    assert (found.status, found.headers["location"]) == (301, f"http://127.0.0.1:{one.port}{path}/?recursive=true")


@pytest.mark.parametrize(
    "path",
    [
        "/computeMetadata/v1beta1/",
        "/computeMetadata/v2/",
        f"{V1}nothing",
        f"{V1}project/project-id/",
        f"{V1}project//project-id",
        f"{V1}../v1/project/project-id",
        f"{V1}instance/attributes/ssh-keys",
        f"{V1}instance/attributes/kube-env",
        f"{V1}instance/service-accounts/default/token/",
        f"{V1}instance/service-accounts/default/identity/x",
    ],
)
async def test_what_is_not_there_is_404(one: Endpoint, path: str) -> None:
    assert (await get(one, path)).status == 404


async def test_what_is_not_known_is_not_made_up(one: Endpoint) -> None:
    one.enrol(dialects=("gce",), default=True, facts={"scopes": CLOUD_PLATFORM})
    for path in ("project/project-id", "project/numeric-project-id", "instance/zone", "instance/attributes/cluster-name"):
        assert (await get(one, V1 + path)).status == 404, path
    assert (await get(one, f"{DEFAULT}?recursive=true")).json["email"] == "default", "google-auth gives up without one"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?scopes=",
        f"?scopes={CLOUD_PLATFORM}",
        f"?scopes={CLOUD_PLATFORM},{EMAIL}",
        f"?scopes={EMAIL}%2C{CLOUD_PLATFORM}",
        f"?scopes={EMAIL}&scopes={CLOUD_PLATFORM}",
    ],
)
async def test_the_configured_scopes_are_what_is_kept_fresh_anyway(one: Endpoint, query: str) -> None:
    assert (await get(one, f"{DEFAULT}token{query}")).json["access_token"] == CANARY
    assert [record.key.variant for record in one.store.records(NAME)] == [""]


async def test_other_scopes_are_a_variant_whatever_their_order(one: Endpoint) -> None:
    for dialect in one.server._dialects.values():
        dialect.timeout = 5.0
    variant = f"{READ} {WRITE}"
    asked = [asyncio.ensure_future(get(one, f"{DEFAULT}token?scopes={a},{b}")) for a, b in ((READ, WRITE), (WRITE, READ))]
    while one.server._waiting < 2:
        await asyncio.sleep(0)
    assert one.store.newcomers.qsize() == 1
    one.hold(token(one, "for-both"), variant=variant)
    assert [(await each).json["access_token"] for each in asked] == ["for-both"] * 2
    assert (await get(one, f"{DEFAULT}token")).json["access_token"] == CANARY


@pytest.mark.parametrize(
    ("scopes", "status"),
    [("", 200), (EMAIL, 200), (CLOUD_PLATFORM, 400), (READ, 503), (f"{EMAIL},{READ}", 503), (f"{READ},{WRITE}", 400), (WRITE, 400)],
)
async def test_scopes_beyond_those_allowed_are_400_and_no_variant(one: Endpoint, scopes: str, status: int) -> None:
    enrol(one, scopes=EMAIL, **{"scopes-allowed": f"{EMAIL} {READ}"})
    for dialect in one.server._dialects.values():
        dialect.timeout = 0.0
    found = await get(one, f"{DEFAULT}token?scopes={scopes}")
    assert found.status == status
    assert (b"provider.scopesAllowed" in found.body) is (status == 400)
    assert len(list(one.store.records(NAME))) == (2 if status == 503 else 1)


async def test_a_variant_in_use_is_known_to_be(one: Endpoint) -> None:
    key = Key(NAME, READ)
    await get(one, f"{DEFAULT}token?scopes={READ}")
    one.hold(token(one), variant=READ)
    one.clock.jump(600)  # type: ignore[attr-defined]
    await get(one, f"{DEFAULT}token?scopes={READ}")
    one.clock.jump(600)  # type: ignore[attr-defined]
    await get(one, f"{DEFAULT}token?scopes={READ}")
    record = one.store.record(key)
    assert record
    assert record.used_at == one.clock.now()


@pytest.mark.parametrize("scopes", ["%C3%A9", "%00", '"', "x" * 257, ",".join(f"s{number}" for number in range(33)), "a%0d%0ab"])
async def test_what_are_no_scopes_are_400_and_no_variant(one: Endpoint, scopes: str) -> None:
    assert (await get(one, f"{DEFAULT}token?scopes={scopes}")).status == 400
    assert [record.key.variant for record in one.store.records(NAME)] == [""]


async def test_one_variant_too_many_is_429_and_those_there_are_go_on(one: Endpoint) -> None:
    for number in range(VARIANTS):
        assert (await get(one, f"{DEFAULT}token?scopes=s{number}")).status == 503
    assert (await get(one, f"{DEFAULT}token?scopes=s99")).status == 429
    assert (await get(one, f"{DEFAULT}token")).status == 200
    one.hold(token(one, "s3"), variant="s3")
    assert (await get(one, f"{DEFAULT}token?scopes=s3")).json["access_token"] == "s3"


async def test_scopes_that_google_refuses_are_400_unless_it_refuses_everything(one: Endpoint) -> None:
    await get(one, f"{DEFAULT}token?scopes=bad")
    one.store.attempted(Key(NAME, "bad"), Rejected("s3-reader: invalid_scope"), one.clock.now())
    found = await get(one, f"{DEFAULT}token?scopes=bad")
    assert (found.status, b"invalid_scope" in found.body) == (400, True)
    one.clock.jump(3600)  # type: ignore[attr-defined]
    assert (await get(one, f"{DEFAULT}token?scopes=bad")).status == 503


async def test_an_id_token_is_googles_and_one_for_each_audience(one: Endpoint) -> None:
    for audience in ("https://app.example", "32555940559.apps.googleusercontent.com"):
        assert (await get(one, f"{DEFAULT}identity?audience={audience}&format=full")).status == 503
        one.hold(id_token(one, audience), variant=f"id:{audience}")
        found = await get(one, f"{DEFAULT}identity?audience={audience}&format=standard&licenses=FALSE")
        assert (found.status, found.body.decode()) == (200, f"signed-by-google-for-{audience}")
        assert found.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "query", ["", "?audience=", "?audience=a&audience=b", "?audience=a%20b", "?audience=%C3%A9", f"?audience={'x' * 513}"]
)
async def test_an_id_token_without_one_plain_audience_is_400(one: Endpoint, query: str) -> None:
    assert (await get(one, f"{DEFAULT}identity{query}")).status == 400
    assert one.store.newcomers.empty()


async def test_a_format_that_is_none_is_400(one: Endpoint) -> None:
    assert (await get(one, f"{DEFAULT}identity?audience=a&format=x")).status == 400
    assert (await get(one, f"{V1}project/project-id?alt=xml")).status == 400


async def test_identity_without_service_account_has_no_id_tokens(one: Endpoint) -> None:
    enrol(one, account="", email="example.svc.id.goog")
    for query in ("?audience=https://app.example", "", "?audience=sts.amazonaws.com&format=full"):
        assert (await get(one, f"{DEFAULT}identity{query}")).status == 404
    assert one.store.newcomers.empty(), "nobody is asked for one"
    assert (await get(one, f"{DEFAULT}email")).body == b"example.svc.id.goog", "as GKE says of a ServiceAccount that acts as itself"


async def test_before_the_first_token_a_request_waits_then_503() -> None:
    async with endpoint(patience=0.4) as one:
        enrol(one)
        one.store.attempted(Key(NAME), Unavailable("s3-reader: sts is away"), one.clock.now())
        assert (await get(one, "/", None)).status == 200
        assert (await get(one, f"{V1}instance/service-accounts/default/?recursive=true")).status == 200
        began = asyncio.get_running_loop().time()
        found = await get(one, f"{DEFAULT}token")
        assert 0.35 <= asyncio.get_running_loop().time() - began < 0.9
        assert 2.4 <= Gce.timeout < 2.9, "google-auth waits three seconds"
        assert (found.status, found.headers["retry-after"]) == (503, "1")
        one.hold(token(one))
        assert (await get(one, f"{DEFAULT}token")).status == 200


async def test_what_has_expired_is_not_handed_out(one: Endpoint) -> None:
    clock = one.clock
    assert isinstance(clock, FakeClock)
    clock.jump(3599.5)
    assert (await get(one, f"{DEFAULT}token")).json["expires_in"] == 0
    clock.jump(0.5)
    assert (await get(one, f"{DEFAULT}token")).status == 503


async def test_where_no_identity_is_the_default_nobody_takes_this_for_googles() -> None:
    async with endpoint() as one:
        one.enrol()
        found = await one.ask("/", authorization=None)
        assert (found.status, "metadata-flavor" in found.headers) == (404, False)


@pytest.mark.parametrize(
    "target", [b"instance?\xff", b"instance?a=\xc3\xa9", b"instanc%65?%ff=%00", b"%ff", b"instance/service-accounts/%ff%fe/token"]
)
async def test_bytes_that_are_no_text_are_no_fault_of_the_servers(one: Endpoint, target: bytes, caplog: pytest.LogCaptureFixture) -> None:
    raw = b"GET " + V1.encode() + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
    found = await one.send(raw)
    assert 300 <= found.status < 500, found.raw
    assert [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []


@pytest.mark.parametrize("scopes", ["", READ])
async def test_a_herd_before_the_first_token_asks_once_and_all_of_it_is_served(scopes: str) -> None:
    async with endpoint(patience=10.0) as one:
        enrol(one)
        asked = [asyncio.ensure_future(get(one, f"{DEFAULT}token?scopes={scopes}")) for _ in range(200)]
        while one.server._waiting < 200:
            await asyncio.sleep(0.001)
        assert one.store.newcomers.qsize() == bool(scopes), "one keeper for the variant"
        record = one.store.record(Key(NAME, scopes))
        assert record
        assert record.asked == {"wanted"}
        one.hold(token(one), variant=scopes)
        assert {(found.status, found.json["access_token"]) for found in await asyncio.gather(*asked)} == {(200, CANARY)}
        assert len(one.server._rendered[NAME]) == 1
