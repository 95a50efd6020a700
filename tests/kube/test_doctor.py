"""What the doctor says of an identity in a cluster: its words are those of the golden files, over the real server and the stand-in."""

import json
import os
import re
from pathlib import Path

import pytest
from aiohttp import web

from agent.clock import WallClock
from agent.config.model import Config
from agent.doctor.case import View
from agent.doctor.report import render
from agent.doctor.walk import examine
from agent.settings import convert
from tests.kube.proxy import Fault
from tests.kube.scene import ANNOTATION, ROLE, Cloud

GOLDEN = Path(__file__).parent.parent / "golden" / "doctor"
STATUS = {"identities": [{"name": "app", "state": "fresh", "failure": None, "sinks": []}]}
LINK, DOCUMENT = "/openid/v1/jwks", "/.well-known/openid-configuration"


class Office:
    def __init__(self, cluster, cloud, kubeconfig, token):
        self.cluster = cluster
        self.cloud = cloud
        self.kubeconfig = kubeconfig
        self.token = token

    async def says(self, name, *, sound, **changes):
        """The walk over one identity, as it is printed; without what differs from run to run."""
        account = {"namespace": self.cluster.namespace, "name": "app"}
        provider = {"type": "aws", "region": "eu-west-1", "endpoint": self.cloud.url, "fromServiceAccount": True}
        identity = {
            "name": "app",
            "source": {"type": "kubernetes", "serviceAccount": account, "kubeconfig": self.kubeconfig},
            "provider": provider,
            "serve": {"dialects": ["container"]},
        }
        config = convert({"identities": [identity | changes]}, Config)
        view = View(socket="agent.sock", status=STATUS)
        sheets = await examine(config, config.identities, environ={}, view=view, base="", clock=WallClock())
        sheets[0].trust = ()
        sheets[0].findings = [finding for finding in sheets[0].findings if finding.link not in {"sinks", "endpoint"}]
        text = render(sheets) + "\n"
        assert self.token not in text
        assert all(finding.verdict not in {"broken", "skipped"} for finding in sheets[0].findings) is sound, text
        text = (
            text.replace(self.cluster.home, "<home>")
            .replace(self.cluster.namespace, "<namespace>")
            .replace(self.kubeconfig, "<kubeconfig>")
        )
        text = re.sub(r"(keys: )https://\S+?(/openid/v1/jwks)", r"\1<server>\2", text)
        text = re.sub(r"127\.0\.0\.1(:\d+)?", "<address>", text)
        text = re.sub(
            r"(?<=kubernetes.default.svc) over|<address>, kubernetes.default.svc over",
            lambda found: found[0].replace("<address>, ", ""),
            text,
        )
        text = re.sub(r"\d+\.\d+\.\d+\.\d+, ", "", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)
        text = re.sub(r"\d+ s left", "<n> s left", text)
        text = re.sub(r"(?<![\w-])(?:[\w-]{43}|fake)(?![\w-])", "<kid>", text)
        golden = GOLDEN / f"kubernetes-{name}.txt"
        if "WRITE_GOLDEN" in os.environ:
            golden.write_text(text)
        assert text == golden.read_text()


@pytest.fixture
async def office(cluster):
    token = await cluster.token("wi-agent", namespace=cluster.home)
    async with Cloud() as cloud:
        made = Office(cluster, cloud, cluster.kubeconfig({"token": token}), token)
        await cluster.annotate("app", {ANNOTATION: ROLE + "one"})
        yield made


@pytest.fixture
async def allowed(office):
    await office.cluster.allow("watch.yaml", "app")
    await office.cluster.allow("events.yaml", "app")
    return office


def refusing(_request):
    error = "<Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>Couldn't retrieve verification key</Message></Error>"
    return web.Response(status=400, text=f"<ErrorResponse>{error}</ErrorResponse>", content_type="text/xml")


async def test_a_sound_chain_in_a_cluster_is_ok(allowed):
    await allowed.says("sound", sound=True)


async def test_a_private_issuer_is_reported(allowed):
    allowed.cloud.instead = refusing
    await allowed.says("private-issuer", sound=False)


async def test_missing_rights_are_reported_with_the_subject(office):
    await office.cluster.delete("RoleBinding", "wi-agent-token-app")
    await office.says("no-rights", sound=False)


async def test_a_literal_role_without_the_watch_right_is_a_warning(office):
    await office.cluster.allow("watch.yaml", "app", verbs=["get"])
    await office.cluster.allow("events.yaml", "app")
    provider = {"type": "aws", "region": "eu-west-1", "endpoint": office.cloud.url, "roleArn": ROLE + "one"}
    await office.says("no-watch", sound=True, provider=provider)


async def test_a_missing_right_to_write_events_is_a_warning(office):
    await office.cluster.allow("watch.yaml", "app")
    await office.says("no-events", sound=True)


async def test_a_missing_serviceaccount_has_the_command_that_creates_it(allowed):
    await allowed.cluster.delete("ServiceAccount", "app")
    await allowed.says("no-account", sound=False)


async def test_a_missing_annotation_is_named(allowed):
    await allowed.cluster.annotate("app", {ANNOTATION: None})
    await allowed.says("no-annotation", sound=False)


async def test_an_unpublished_key_is_named(allowed):
    jwks = json.dumps({"keys": [{"kid": "another", "kty": "RSA"}]})
    allowed.cluster.proxy.always = Fault(status=200, body=jwks, match=LINK)
    allowed.cloud.instead = refusing
    await allowed.says("another-key", sound=False)


async def test_a_document_of_another_issuer_is_named(allowed):
    document = json.dumps({"issuer": "https://other.example", "jwks_uri": "https://other.example/keys"})
    allowed.cluster.proxy.always = Fault(status=200, body=document, match=DOCUMENT)
    allowed.cloud.instead = refusing
    await allowed.says("another-issuer", sound=False)


async def test_a_generic_provider_needs_only_the_api_servers_keys(allowed):
    await allowed.says("generic", sound=True, provider={"type": "generic", "audiences": ["a"]}, serve={})
