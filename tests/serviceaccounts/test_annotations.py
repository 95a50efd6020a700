"""What annotations of a ServiceAccount make of an identity, and which of them are refused."""

import pytest

from agent.config.model import Config, Identity, identity_digest
from agent.errors import Rejected
from agent.serviceaccounts.annotations import ObservedServiceAccount, effective, followed, sighted
from agent.settings import convert
from agent.sources.kubernetes import ServiceAccount

POOL = "projects/12345/locations/global/workloadIdentityPools/pool/providers/"
GUID = "72f988bf-86f1-41af-91ab-2d7cd011db4"
AWS = {"type": "aws", "region": "eu-west-1"}
AZURE = {"type": "azure"}
GCP = {"type": "gcp"}
ALIBABA = {"type": "alibaba", "oidcProviderArn": "acs:ram::1234567890123456:oidc-provider/cluster"}
ROLE = "arn:aws:iam::123456789012:role/"
EKS, CLIENT, TENANT = "eks.amazonaws.com/role-arn", "azure.workload.identity/client-id", "azure.workload.identity/tenant-id"
GKE, FLUX, ALI = (
    "iam.gke.io/gcp-service-account",
    "gcp.auth.fluxcd.io/workload-identity-provider",
    "pod-identity.alibabacloud.com/role-name",
)


def an_identity(provider, **source):
    source = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}} | source
    return convert({"name": "x", "source": source, "provider": {**provider, "fromServiceAccount": True}}, Identity)


def found(provider, annotations):
    return effective(an_identity(provider), ObservedServiceAccount("u1", annotations)).provider


@pytest.mark.parametrize(
    ("provider", "annotations", "expected"),
    [
        (AWS, {EKS: ROLE + "a/b"}, {"role_arn": ROLE + "a/b"}),
        (AWS | {"roleArn": ROLE + "default"}, {}, {"role_arn": ROLE + "default"}),
        (AWS | {"roleArn": ROLE + "default"}, {EKS: ""}, {"role_arn": ROLE + "default"}),
        (AWS | {"roleArn": ROLE + "default"}, {EKS: ROLE + "own"}, {"role_arn": ROLE + "own"}),
        (AZURE, {CLIENT: GUID + "1", TENANT: GUID + "2"}, {"client_id": GUID + "1", "tenant_id": GUID + "2"}),
        (AZURE | {"tenantId": GUID + "3"}, {CLIENT: GUID + "1"}, {"client_id": GUID + "1", "tenant_id": GUID + "3"}),
        (GCP, {FLUX: POOL + "cluster"}, {"workload_identity_provider": POOL + "cluster", "service_account": None}),
        (GCP | {"gke": True}, {GKE: "app@project.iam.gserviceaccount.com"}, {"service_account": "app@project.iam.gserviceaccount.com"}),
        (GCP | {"workloadIdentityProvider": POOL + "cluster"}, {}, {"workload_identity_provider": POOL + "cluster"}),
        (ALIBABA, {ALI: "web"}, {"role_arn": "acs:ram::1234567890123456:role/web"}),
    ],
)
def test_each_clouds_annotations_say_what_its_own_webhook_takes_from_them(provider, annotations, expected):
    settings = found(provider, annotations)
    assert {name: getattr(settings, name) for name in expected} == expected
    assert not list(settings.faults()), "it stands as if the configuration had said so"


@pytest.mark.parametrize(
    ("provider", "annotations", "named"),
    [
        (AWS, {}, f"has no annotation {EKS}"),
        (AZURE, {CLIENT: GUID + "1"}, f"has no annotation {TENANT}"),
        (AZURE, {TENANT: GUID + "1"}, f"has no annotation {CLIENT}"),
        (GCP, {GKE: "app@project.iam.gserviceaccount.com"}, f"has no annotation {FLUX}"),
        (ALIBABA, {}, f"has no annotation {ALI}"),
        (AWS, {EKS: "arn:aws-cn:iam::123456789012:role/a"}, "provider.region"),
        (GCP | {"gke": True}, {FLUX: POOL + "cluster"}, "provider.workloadIdentityProvider"),
        (ALIBABA, {ALI: "acs:ram::999999999999:role/web"}, f"annotation {ALI}"),
        (ALIBABA, {ALI: "../web"}, f"annotation {ALI}"),
        (GCP, {FLUX: POOL + "../cluster"}, f"annotation {FLUX}"),
        (AZURE, {CLIENT: GUID + "1", TENANT: "common"}, f"annotation {TENANT}"),
        *(
            (provider, {key: value}, f"annotation {key}")
            for provider, key in ((AWS, EKS), (AZURE, CLIENT), (GCP, GKE), (GCP, FLUX), (ALIBABA, ALI))
            for value in ("x\n", "web\n", "../../etc/passwd", "\u202egnp", "ｗｅｂ.", "x" * 65536, "a\x00b", "${HOME}", "\x1b[2J")
        ),
    ],
)
def test_what_is_missing_or_of_no_use_is_refused_by_the_name_of_the_annotation(provider, annotations, named):
    with pytest.raises(Rejected) as caught:
        found(provider, annotations)
    assert named in caught.value.message
    assert "ServiceAccount demo/app" in caught.value.message
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


def test_annotations_of_other_clouds_and_other_names_say_nothing():
    others = {CLIENT: GUID + "1", "eks.amazonaws.com/role-arn2": "x", "eks.amazonaws.com/endpoint": "http://evil.example", "proxy": "x"}
    settings = found(AWS, others | {EKS: ROLE + "a"})
    assert settings == convert(AWS | {"roleArn": ROLE + "a"}, type(settings))


def test_only_this_very_serviceaccount_is_seen():
    account = ServiceAccount(namespace="tenant1", name="app")
    metadata = {"namespace": "tenant1", "name": "app", "uid": "u1", "annotations": {EKS: "x", "y": 1}}
    assert sighted({"metadata": metadata}, account) == ObservedServiceAccount("u1", {EKS: "x"})
    for other in (
        {"namespace": "tenant10"},
        {"name": "app2"},
        {"uid": ""},
        {"uid": None},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"name": None},
    ):
        assert sighted({"metadata": metadata | other}, account) is None, other
    assert sighted({}, account) is None
    assert sighted({"metadata": metadata | {"annotations": ["x"]}}, account) == ObservedServiceAccount("u1", {})


def test_uid_and_principal_are_in_the_digest():
    identity = an_identity(AWS)
    digests = {
        identity_digest(effective(identity, ObservedServiceAccount(uid, {EKS: ROLE + role})), Config(identities=()), uid)
        for uid in ("u1", "u2")
        for role in ("a", "b")
    }
    assert len(digests) == 4


def test_nobody_is_followed_who_does_not_ask_for_it():
    identity = an_identity(AWS)
    assert followed(identity) == ServiceAccount(namespace="demo", name="app")
    assert (
        followed(convert({"name": "x", "source": {"type": "file", "path": "/x"}, "provider": AWS | {"fromServiceAccount": True}}, Identity))
        is None
    )
    source = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}}
    assert followed(convert({"name": "x", "source": source, "provider": AWS | {"roleArn": ROLE + "a"}}, Identity)) is None
