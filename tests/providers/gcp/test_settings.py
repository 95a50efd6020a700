"""What Google knows and what it could not: settings accepted and refused, spoofs among them, and the trust to create."""

from typing import Any

import msgspec
import pytest

from tests.providers.gcp.case import MIDDLE, READ_ONLY
from tests.servers.gcp import ACCOUNT, PATH, gcp_settings
from tests.servers.issuer import SUBJECT

ACCEPTED: list[dict[str, Any]] = [
    {"serviceAccount": ACCOUNT},
    {"serviceAccount": "sa-1@proj.example.com.iam.gserviceaccount.com"},
    {"serviceAccount": "sa@project.s3ns.iam.gserviceaccount.com"},
    {"serviceAccount": "123-compute@developer.gserviceaccount.com"},
    {"serviceAccount": "proj@appspot.gserviceaccount.com"},
    {"serviceAccount": "proj.example.com@appspot.gserviceaccount.com"},
    {"scopes": ["openid", "https://mail.google.com/"]},
    {"universeDomain": "apis-s3ns.fr"},
    {"project": "example.com:proj"},
    {"gke": True},
    {"endpoint": "https://sts.googleapis.com/"},
    {"endpoint": "https://sts-psc.p.googleapis.com:8443"},
    {"endpoint": "http://127.0.0.1:80", "iamEndpoint": "http://[::1]:80"},
    {"serviceAccount": ACCOUNT, "lifetime": "10m"},
    {"serviceAccount": ACCOUNT, "lifetime": "12h"},
    {"audiences": ["https://issuer.example/gcp"]},
]
REFUSED: list[dict[str, Any]] = [
    *(
        {"serviceAccount": email}
        for email in (
            "",
            "sa",
            "sa@proj.iam.gserviceaccount.com.evil.example",
            "sa@evil.example/proj.iam.gserviceaccount.com",
            "evil@evil.example@proj.iam.gserviceaccount.com",
            "sa@proj.iam.gserviceaccount.com.",
            "sa@.iam.gserviceaccount.com",
            "sa@proj..example.iam.gserviceaccount.com",
            "sá@proj.iam.gserviceaccount.com",
            "sa@projiam.gserviceaccount.com",
            "sa@proj.iam.gserviceaccountxcom",
            "../sa@proj.iam.gserviceaccount.com",
            "sa@proj.iam.gserviceaccount.com:signBlob",
            "x-compute@developer.gserviceaccount.com",
            "sa%2f@proj.iam.gserviceaccount.com",
            "sa@proj.iam.gserviceaccount.com\n",
        )
    ),
    *(
        {"workloadIdentityProvider": path}
        for path in (
            "",
            f"//iam.googleapis.com/{PATH}",
            f"https://iam.googleapis.com/{PATH}",
            f"{PATH}/",
            f"{PATH}/..",
            f"{PATH}\n",
            PATH.replace("123456789012", "my-project"),
            PATH.replace("123456789012", "１２３"),
            PATH.replace("global", "europe-west1"),
            PATH.replace("demo-pool", "abc"),
            PATH.replace("demo-pool", "Demo-Pool"),
            PATH.replace("demo-pool", "demo.pool"),
            PATH.replace("providers", "workforcePools"),
        )
    ),
    *(
        {"endpoint": url}
        for url in (
            "https://evil.example/a.googleapis.com",
            "https://evil.example#.googleapis.com",
            "https://evil.example?.googleapis.com",
            "https://sts.googleapis.com@evil.example",
            "https://user:password@sts.googleapis.com",
            "https://sts.googleapis.com./",
            "https://sts.googleapis.com/v1/token",
            "https://sts.googleapis.com\\@evil.example",
            "https://sts.googleapıs.com",
            "http://sts.googleapis.com",
            "http://127.0.0.1.evil.example",
            "ftp://sts.googleapis.com",
            "sts.googleapis.com",
        )
    ),
    {"iamEndpoint": "https://evil.example/a.googleapis.com"},
    {"iamEndpoint": "http://iamcredentials.googleapis.com"},
    {"gke": True, "metadataEndpoint": "http://user@127.0.0.1"},
    {"gke": True, "metadataEndpoint": "http://127.0.0.1/x"},
    {"metadataEndpoint": "http://127.0.0.1"},
    {"endpoint": "http://127.0.0.1:80", "proxy": "http://proxy:3128"},
    *(
        {"universeDomain": name}
        for name in ("com", "googleapis.com.", "evil.example/googleapis.com", "a@b.example", "gооgleapis.com", "a.b\n")
    ),
    *({"scopes": scopes} for scopes in ([], ["a b"], [""], ["a\n"], ["é"], ['a"b'])),
    {"project": "a b"},
    {"gke": True, "workloadIdentityProvider": PATH},
    {"workloadIdentityProvider": None},
    {"gke": True, "universeDomain": "apis-s3ns.fr"},
    {"gke": True, "audiences": ["x"]},
    {"delegates": [MIDDLE]},
    {"serviceAccount": ACCOUNT, "delegates": [ACCOUNT]},
    {"serviceAccount": ACCOUNT, "delegates": ["nobody"]},
    {"lifetime": "1h"},
    {"serviceAccount": ACCOUNT, "lifetime": "9m"},
    {"serviceAccount": ACCOUNT, "lifetime": "13h"},
    {"exchange": False, "scopes": [READ_ONLY]},
    {"exchange": False, "serviceAccount": ACCOUNT, "delegates": [MIDDLE]},
]


@pytest.mark.parametrize("settings", ACCEPTED, ids=str)
def test_settings_that_google_knows_are_accepted(settings: dict[str, Any]) -> None:
    assert list(gcp_settings(**settings).faults()) == []


@pytest.mark.parametrize("settings", REFUSED, ids=str)
def test_settings_that_cannot_be_are_refused_by_the_fields_name(settings: dict[str, Any]) -> None:
    assert refused(settings) & {*settings, "workloadIdentityProvider"}


def refused(settings: dict[str, Any]) -> set[str]:
    """Fields that are named."""
    try:
        return {field for field, _ in gcp_settings(**settings).faults()}
    except msgspec.ValidationError as error:
        return {field for field in settings if f"`$.{field}" in str(error)}


def test_the_trust_to_create_is_this_identitys_and_no_others() -> None:
    issuer = "https://issuer.example"
    direct = "\n".join(gcp_settings().trust(issuer=issuer, subject=SUBJECT).lines())
    pool = "principal://iam.googleapis.com/" + PATH.rpartition("/providers/")[0]
    assert "providers create-oidc demo-issuer --project=123456789012 --location=global --workload-identity-pool=demo-pool" in direct
    assert f"--issuer-uri={issuer} --attribute-mapping=google.subject=assertion.sub\n" in direct
    assert f"--member={pool}/subject/{SUBJECT}" in direct
    chained = gcp_settings(serviceAccount=ACCOUNT, delegates=[MIDDLE], audiences=["a"]).trust(issuer=issuer, subject=SUBJECT).lines()
    assert "--allowed-audiences=a" in "\n".join(chained)
    assert f"{MIDDLE} --role=roles/iam.workloadIdentityUser --member={pool}/subject/{SUBJECT}" in chained[-2]
    assert f"{ACCOUNT} --role=roles/iam.serviceAccountTokenCreator --member=serviceAccount:{MIDDLE}" in chained[-1]
    assert "not an https URL" in "\n".join(gcp_settings().trust(issuer="http://x", subject=SUBJECT).lines())
    assert "127 bytes" in "\n".join(gcp_settings().trust(issuer=issuer, subject="s" * 128).lines())
    gke = gcp_settings(gke=True).trust(issuer=issuer, subject=SUBJECT).lines()
    assert "PROJECT_ID.svc.id.goog/subject/ns/demo/sa/s3-reader" in gke[-1]
