"""What an Azure identity's settings may be, spoofs included."""

from typing import Any

import pytest

from tests.servers.azure import azure_settings
from tests.servers.entra import CLIENT, TENANT

VAULT = "https://vault.azure.net"
STORAGE = "https://storage.azure.com"


def accepted(**settings: Any) -> bool:
    """Whether they can be read and their own rules find nothing."""
    import msgspec

    try:
        return not list(azure_settings(**settings).faults())
    except msgspec.ValidationError:
        return False


TENANTS = {
    TENANT: True,
    TENANT.upper(): True,
    "contoso.onmicrosoft.com": True,
    "contoso-1.example": True,
    "xn--grn-joa.example": True,
    "common": False,
    "organizations": False,
    "consumers": False,
    "adfs": False,
    "": False,
    TENANT[:-1]: False,
    f"{TENANT}/oauth2": False,
    f"{TENANT}?x": False,
    f"../{TENANT}": False,
    "..": False,
    "contoso.example.": False,
    ".contoso.example": False,
    "contoso..example": False,
    "-contoso.example": False,
    "contoso.example/": False,
    "contoso.example#": False,
    "contoso.example%2f": False,
    "evil.example\\@contoso.example": False,
    "grün.example": False,
    "соntoso.example": False,  # with Cyrillic letters
    " contoso.example": False,
}


@pytest.mark.parametrize(("tenant", "good"), TENANTS.items())
def test_a_tenant_is_a_guid_or_a_verified_domain(tenant: str, good: bool) -> None:
    assert accepted(tenantId=tenant) == good


@pytest.mark.parametrize(
    ("client", "good"),
    {
        CLIENT: True,
        CLIENT.upper(): True,
        "": False,
        "my-app": False,
        f"{{{CLIENT}}}": False,
        CLIENT[1:]: False,
        f"{CLIENT} ": False,
    }.items(),
)
def test_a_client_is_a_guid(client: str, good: bool) -> None:
    assert accepted(clientId=client) == good


AUTHORITIES = {
    "public": "https://login.microsoftonline.com",
    "usgovernment": "https://login.microsoftonline.us",
    "china": "https://login.chinacloudapi.cn",
    "https://login.microsoftonline.com": "https://login.microsoftonline.com",
    "https://login.microsoftonline.com/": "https://login.microsoftonline.com",
    "https://LOGIN.microsoftonline.us/": "https://login.microsoftonline.us",
    "https://login.partner.microsoftonline.cn": "https://login.partner.microsoftonline.cn",
    "https://localhost:8443": "https://localhost:8443",
    "https://127.0.0.1:8443/": "https://127.0.0.1:8443",
    "Public": None,
    "germany": None,
    "": None,
    "login.microsoftonline.com": None,
    "http://login.microsoftonline.com": None,
    "http://127.0.0.1:80": None,
    "https://evil.example/login.microsoftonline.com": None,
    "https://login.microsoftonline.com@evil.example": None,
    "https://user:secret@login.microsoftonline.com": None,
    "https://login.microsoftonline.com.": None,
    "https://login.microsoftonline.com./": None,
    "https://login.microsoftonline.com//": None,
    "https://login.microsoftonline.com?x": None,
    "https://login.microsoftonline.com#x": None,
    "https://login.microsoftonline.com\\.evil.example": None,
    "https://login.microsoftonline.com:99999": None,
    "https://login.microsоftonline.com": None,  # with a Cyrillic letter
    "https://login.microsoftonline。com": None,
    "https://login.microsoftonline.com\t": None,
    "ftp://login.microsoftonline.com": None,
    "https://": None,
    "https:///x": None,
}


@pytest.mark.parametrize(("authority", "url"), AUTHORITIES.items())
def test_an_authority_is_a_known_cloud_or_an_https_host(authority: str, url: str | None) -> None:
    assert accepted(authority=authority, scopes=[f"{VAULT}/.default"]) == (url is not None)
    if url:
        assert azure_settings(authority=authority).authority.url == url


@pytest.mark.parametrize(
    ("scope", "good"),
    {
        f"{VAULT}/.default": True,
        "https://eventhubs.azure.net//.default": True,
        "499b84ac-1321-427f-aa17-267ca6975798/.default": True,
        "api://my-app/.default": True,
        VAULT: False,
        f"{VAULT}/.default {STORAGE}/.default": False,
        f"{VAULT}/user_impersonation": False,
        "/.default": False,
        ".default": False,
        f"{VAULT}/.default/": False,
        f"{VAULT}&client_id=x/.default": False,
        "grün/.default": False,
    }.items(),
)
def test_a_scope_is_all_of_one_resource(scope: str, good: bool) -> None:
    assert accepted(scopes=[scope]) == good


@pytest.mark.parametrize(
    ("resource", "good"), {VAULT: True, f"{VAULT}/": True, f"{VAULT}/.default": False, "": False, "a b": False}.items()
)
def test_a_resource_is_one_without_its_scope(resource: str, good: bool) -> None:
    assert accepted(resources=[resource]) == good


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"exchange": False}, []),
    ({"exchange": False, "authority": "https://own.example"}, []),
    ({"authority": "https://own.example"}, ["scopes"]),
    ({"exchange": False, "scopes": [f"{VAULT}/.default"], "resources": [VAULT]}, ["resources"]),
    ({"scopes": [f"{VAULT}/.default", f"{VAULT}/.default"]}, ["scopes[1]"]),
    ({"endpoint": "https://login.example/base"}, []),
    ({"endpoint": "https://u:p@login.example"}, ["endpoint"]),
    ({"endpoint": "http://login.example"}, ["endpoint"]),
    ({"endpoint": "http://127.0.0.1.example"}, ["endpoint"]),
    ({"endpoint": "http://[::1]:80"}, []),
    ({"endpoint": "http://localhost:80", "proxy": "http://proxy:3128"}, ["proxy"]),
    ({"proxy": "http://u:p@proxy:3128"}, []),
]


@pytest.mark.parametrize(("settings", "fields"), FAULTS, ids=str)
def test_settings_that_cannot_work_together_are_named(settings: dict[str, Any], fields: list[str]) -> None:
    assert [field for field, _ in azure_settings(**settings).faults()] == fields


def test_the_host_is_the_authoritys_unless_configured() -> None:
    assert azure_settings().asked_at.host == "login.microsoftonline.com"
    assert azure_settings(authority="usgovernment").asked_at.host == "login.microsoftonline.us"
    assert azure_settings(endpoint="https://proxy.example/entra").asked_at.host == "proxy.example"
    assert azure_settings(authority="usgovernment").kept == ("https://management.usgovcloudapi.net/.default",)
