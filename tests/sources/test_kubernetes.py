import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from agent.config.model import Identity
from agent.counters import Counters
from agent.errors import NotReady, RefreshError, Rejected, Unavailable
from agent.kube.clients import KubeClients
from agent.settings import convert
from agent.sources.kubernetes import KubernetesSettings, KubernetesSource
from agent.toolbox import Toolbox
from tests.fakes import FakeClock
from tests.kube.proxy import Fault

CLUSTER = "https://kubernetes.default.svc"


def settings(cluster, name="app", **more):
    return convert({"serviceAccount": {"namespace": cluster.namespace, "name": name}, **more}, KubernetesSettings)


def source(cluster, kube, name="app", clock=None, **more):
    return KubernetesSource(settings(cluster, name, **more), "demo", cluster.toolbox(kube, clock))


@pytest.mark.parametrize("audiences", [["sts.example"], ["one.example", "two.example"], []], ids=["one", "two", "none"])
async def test_a_token_is_for_the_audiences_asked_for_and_verifies_with_the_servers_published_keys(cluster, audiences):
    async with cluster.clients() as kube:
        token = await source(cluster, kube, lifetime="10m").fetch(audiences)
    expected = audiences or [CLUSTER]
    claims = await cluster.verified(token.value.reveal(), expected[0])
    assert claims["aud"] == expected
    assert list(token.audiences) == expected
    assert token.subject == claims["sub"] == f"system:serviceaccount:{cluster.namespace}:app"
    assert token.issuer == CLUSTER
    assert token.issued_at == datetime.fromtimestamp(claims["iat"], UTC)
    assert token.expires_at - token.issued_at == timedelta(seconds=600)
    assert "pod" not in claims["kubernetes.io"]


async def test_the_clusters_ca_and_the_namespace_come_with_the_token(cluster):
    async with cluster.clients() as kube:
        token = await source(cluster, kube).fetch([])
    assert token.companions == {"ca.crt": cluster.ca, "namespace": cluster.namespace}


async def test_an_own_pods_token_is_bound_to_it(cluster):
    pod = await cluster.pod("runner", "app")
    async with cluster.clients(POD_NAMESPACE=cluster.namespace, POD_NAME="runner", POD_UID=pod["metadata"]["uid"]) as kube:
        token = await source(cluster, kube, boundTo="pod").fetch(["a"])
    claims = await cluster.verified(token.value.reveal(), "a")
    assert claims["kubernetes.io"]["pod"] == {"name": "runner", "uid": pod["metadata"]["uid"]}


async def test_a_pod_of_another_service_account_is_refused_in_the_api_servers_words(cluster):
    await cluster.account("other")
    pod = await cluster.pod("runner", "other")
    async with cluster.clients(POD_NAMESPACE=cluster.namespace, POD_NAME="runner", POD_UID=pod["metadata"]["uid"]) as kube:
        with pytest.raises(Rejected, match="different serviceaccount name"):
            await source(cluster, kube, boundTo="pod").fetch(["a"])
    assert cluster.proxy.count() == 1


async def test_a_pod_in_another_namespace_is_refused_without_a_request(cluster):
    async with cluster.clients(POD_NAMESPACE="elsewhere", POD_NAME="runner", POD_UID="u") as kube:
        with pytest.raises(Rejected, match="the agent's pod is in namespace elsewhere"):
            await source(cluster, kube, boundTo="pod").fetch(["a"])
    assert cluster.proxy.count() == 0


async def test_an_agent_that_does_not_know_its_pod_says_which_variables_tell_it(cluster):
    async with cluster.clients(POD_NAME="runner") as kube:
        with pytest.raises(Rejected, match="POD_NAME, POD_NAMESPACE and POD_UID"):
            await source(cluster, kube, boundTo="pod").fetch(["a"])


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
async def test_a_token_is_bound_to_a_named_object_and_refused_when_that_is_gone_or_another(cluster, kind):
    made = await (cluster.pod("thing", "app") if kind == "Pod" else cluster.create("Secret", "thing"))
    uid = made["metadata"]["uid"]
    async with cluster.clients() as kube:
        for bound in ({"kind": kind, "name": "thing"}, {"kind": kind, "name": "thing", "uid": uid}):
            token = await source(cluster, kube, boundTo=bound).fetch(["a"])
            claims = await cluster.verified(token.value.reveal(), "a")
            assert claims["kubernetes.io"][kind.lower()] == {"name": "thing", "uid": uid}
        stranger = {"kind": kind, "name": "thing", "uid": "00000000-0000-0000-0000-000000000000"}
        with pytest.raises(Rejected, match="does not match the UID in record"):
            await source(cluster, kube, boundTo=stranger).fetch(["a"])
        await cluster.delete(kind, "thing")
        with pytest.raises(Rejected, match=rf'{kind.lower()}s "thing" not found.*what the token is bound to') as caught:
            await source(cluster, kube, boundTo={"kind": kind, "name": "thing"}).fetch(["a"])
    assert "is gone" in caught.value.remedy


async def test_without_its_role_the_agent_names_verb_resource_namespace_subject_and_the_role(cluster):
    await cluster.account("other")
    async with cluster.clients() as kube:
        with pytest.raises(Rejected) as caught:
            await source(cluster, kube, "other").fetch(["a"])
    said = str(caught.value)
    assert said.startswith(f"demo: {cluster.agent} may not create serviceaccounts/token of other in namespace {cluster.namespace}")
    assert f"ServiceAccount {cluster.home}/wi-agent" in caught.value.remedy
    assert "verbs [create] on resources [serviceaccounts/token], resourceNames [other]" in caught.value.remedy
    assert f"a Role in namespace {cluster.namespace}" in caught.value.remedy


async def test_the_documented_role_allows_nothing_else(cluster):
    from agent.kube.errors import ApiError

    elsewhere = f"/api/v1/namespaces/{cluster.namespace}"
    async with cluster.clients() as kube:
        client = kube.client()
        for method, path in (
            ("GET", f"{elsewhere}/serviceaccounts"),
            ("GET", f"{elsewhere}/serviceaccounts/app"),
            ("GET", f"{elsewhere}/secrets"),
            ("POST", f"{elsewhere}/serviceaccounts/default/token"),
            ("POST", f"{elsewhere}/events"),
        ):
            with pytest.raises(ApiError) as caught:
                await client.send(method, path, body={"metadata": {"name": "x"}, "spec": {}} if method == "POST" else None)
            assert caught.value.status == 403, path


async def test_a_service_account_that_is_not_there_is_told_with_the_command_that_makes_it(cluster):
    await cluster.allow("token.yaml", "ghost")
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="there is no ServiceAccount") as caught:
            await source(cluster, kube, "ghost").fetch(["a"])
    assert f"kubectl create serviceaccount -n {cluster.namespace} ghost" in caught.value.remedy


async def test_what_the_api_server_finds_wrong_is_told_in_its_words(cluster):
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="may not specify a duration less than 10 minutes"):
            await source(cluster, kube, lifetime="9m").fetch(["a"])


@pytest.mark.parametrize(("status", "after"), [(429, 7.0), (503, 7.0), (500, None)])
async def test_a_busy_api_server_is_left_alone_as_long_as_it_asks(cluster, status, after):
    cluster.proxy.always = Fault(status=status, headers={"Retry-After": "7"} if after else {}, body="not an object")
    async with cluster.clients() as kube:
        with pytest.raises(Unavailable) as caught:
            await source(cluster, kube).fetch(["a"])
    assert caught.value.retry_after == after
    assert cluster.proxy.count() == 1


async def test_a_connection_that_breaks_is_unavailable_and_asked_once(cluster):
    cluster.proxy.always = Fault(cut=True)
    async with cluster.clients() as kube:
        with pytest.raises(Unavailable, match=r"demo: .*broke off"):
            await source(cluster, kube).fetch(["a"])


async def test_an_api_server_that_is_away_is_unavailable_and_answers_again_when_it_is_back(cluster):
    async with cluster.clients() as kube:
        mine = source(cluster, kube)
        await mine.fetch(["a"])
        await cluster.proxy.down()
        with pytest.raises(Unavailable, match="demo: "):
            await mine.fetch(["a"])
        await cluster.proxy.up()
        await mine.fetch(["a"])
    assert cluster.proxy.count() == 2


async def test_an_api_server_that_does_not_answer_is_given_up_in_time(cluster):
    cluster.proxy.delay = 5.0
    async with cluster.clients(timeout=0.2) as kube:
        await kube.client()._line_of(await kube.client().credentials.access())  # loading takes its time, and is none of the server's
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match="did not answer in time"):
            await source(cluster, kube).fetch(["a"])
        assert asyncio.get_running_loop().time() - began < 2


async def test_the_agents_own_token_is_read_anew_for_each_request(cluster):
    async with cluster.clients() as kube:
        mine = source(cluster, kube)
        await mine.fetch(["a"])
        cluster.own_token(await cluster.token("wi-agent", namespace=cluster.home, seconds=7200))
        await mine.fetch(["a"])
    assert len(set(cluster.proxy.tokens)) == 2
    assert cluster.proxy.count() == 2


async def test_after_a_401_a_token_renewed_meanwhile_is_tried_once(cluster, monkeypatch):
    async with cluster.clients() as kube:
        mine, client = source(cluster, kube), kube.client()
        await mine.fetch(["a"])
        good = (cluster.folder / "token").read_text()
        cluster.own_token("stale.stale.stale")
        load, reads = client.credentials.load, []

        def renewing(read):
            reads.append(1)
            access = load(read)
            cluster.own_token(good)
            return access

        client.credentials.load = renewing
        await mine.fetch(["a"])
    assert len(reads) == 2
    assert cluster.proxy.count() == 3


async def test_an_unknown_agent_is_rejected_after_one_request_and_its_token_is_not_told(cluster):
    cluster.own_token("canary-unknown-token")
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="answered 401") as caught:
            await source(cluster, kube).fetch(["a"])
    assert cluster.proxy.count() == 1
    assert "canary" not in str(caught.value)


async def test_an_own_token_that_expired_is_said_to_have_and_the_next_one_is_taken(cluster):
    good = (cluster.folder / "token").read_text()
    cluster.proxy.faults = [Fault(status=401, body='{"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized"}')]
    clock = FakeClock(datetime.now(UTC) + timedelta(hours=2))
    async with cluster.clients(clock) as kube:
        mine = source(cluster, kube, clock=clock)
        with pytest.raises(Unavailable, match="the agent's own token expired at"):
            await mine.fetch(["a"])
        cluster.own_token(good)
        await mine.fetch(["a"])


async def test_no_redirect_is_followed(cluster):
    cluster.proxy.always = Fault(status=307, headers={"Location": cluster.url})
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="redirects, and the agent follows no redirect with its token"):
            await source(cluster, kube).fetch(["a"])
    assert cluster.proxy.count() == 1


async def test_a_certificate_that_the_cluster_did_not_sign_is_rejected_and_a_new_ca_is_taken_up(cluster, tmp_path):
    from tests.servers.tls import certificate

    _, other = certificate(tmp_path, "localhost")
    with open(other) as file:
        (cluster.folder / "ca.crt").write_text(file.read())
    async with cluster.clients() as kube:
        mine = source(cluster, kube)
        with pytest.raises(Rejected, match="a certificate that is not trusted"):
            await mine.fetch(["a"])
        (cluster.folder / "ca.crt").write_text(cluster.ca)
        await mine.fetch(["a"])
        (cluster.folder / "ca.crt").write_text("no PEM")
        with pytest.raises(Rejected, match="is not PEM"):
            await mine.fetch(["a"])
    assert cluster.proxy.count() == 1


async def test_an_own_token_that_is_missing_or_empty_is_awaited(cluster):
    async with cluster.clients() as kube:
        cluster.own_token("")
        with pytest.raises(NotReady, match="is empty"):
            await source(cluster, kube).fetch(["a"])
        (cluster.folder / "token").unlink()
        with pytest.raises(NotReady, match="there is no"):
            await source(cluster, kube).fetch(["a"])
    assert cluster.proxy.count() == 0


async def test_an_answer_that_is_no_token_is_rejected(cluster):
    cluster.proxy.always = Fault(status=201, body='{"status": {"token": 7}}')
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="the API server's answer: not a JWT"):
            await source(cluster, kube).fetch(["a"])
        cluster.proxy.always = Fault(status=200, body="<html>sign in</html>")
        with pytest.raises(Rejected, match="not a JSON object"):
            await source(cluster, kube).fetch(["a"])


@pytest.mark.parametrize("size", [70_000, 8_000_000])
@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_refusal_of_much_text_is_told_by_its_status(cluster, status, size):
    body = json.dumps({"kind": "Status", "message": "word " * (size // 5)})
    cluster.proxy.always = Fault(status=status, headers={"Retry-After": "7"}, body=body)
    async with cluster.clients() as kube:
        with pytest.raises(RefreshError) as caught:
            await source(cluster, kube).fetch(["a"])
        assert "word" not in caught.value.message
        assert getattr(caught.value, "retry_after", None) == (7.0 if status == 500 else None)
        cluster.proxy.always = None
        await source(cluster, kube).fetch(["a"])


@pytest.mark.parametrize("after", ["Mon, 01 Jan 2026 00:00:00 +99999999999999", "Fri, 31 Dec 9999 23:59:59 -2359", "9" * 4000])
async def test_an_absurd_retry_after_is_unavailable(cluster, after):
    cluster.proxy.always = Fault(status=503, headers={"Retry-After": after}, body="not an object")
    async with cluster.clients() as kube:
        with pytest.raises(Unavailable) as caught:
            await source(cluster, kube).fetch(["a"])
    assert (caught.value.retry_after or 0.0) <= 86400


async def test_outside_a_cluster_the_agent_says_what_to_set(cluster):
    async with cluster.clients(KUBERNETES_SERVICE_HOST="") as kube:
        with pytest.raises(Rejected, match="does not run in a pod") as caught:
            await source(cluster, kube).fetch(["a"])
    assert "source.kubeconfig" in caught.value.remedy


async def test_the_earliest_expiry_that_is_named_counts(cluster):
    token = await cluster.token("app")
    body = {"status": {"token": token, "expirationTimestamp": "2026-01-01T00:00:00Z"}}
    cluster.proxy.always = Fault(status=201, body=json.dumps(body))
    async with cluster.clients() as kube:
        found = await source(cluster, kube).fetch([CLUSTER])
        assert found.expires_at == datetime(2026, 1, 1, tzinfo=UTC)
        body["status"]["expirationTimestamp"] = "no time"
        cluster.proxy.always = Fault(status=201, body=json.dumps(body))
        found = await source(cluster, kube).fetch([CLUSTER])
    assert found.expires_at - found.issued_at == timedelta(hours=1)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
async def test_an_expiry_beyond_the_calendar_is_not_believed(cluster, moment):
    body = {"status": {"token": await cluster.token("app"), "expirationTimestamp": moment}}
    cluster.proxy.always = Fault(status=201, body=json.dumps(body))
    async with cluster.clients() as kube:
        found = await source(cluster, kube).fetch([CLUSTER])
    assert found.expires_at - found.issued_at == timedelta(hours=1)


async def test_a_token_of_another_serviceaccount_is_rejected(cluster):
    await cluster.account("other")
    cluster.proxy.always = Fault(status=201, body=json.dumps({"status": {"token": await cluster.token("other")}}))
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match=f"another subject than system:serviceaccount:{cluster.namespace}:app"):
            await source(cluster, kube).fetch(["a"])


async def test_a_token_names_the_uid_of_its_serviceaccount(cluster):
    account = await cluster.admin("GET", f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/app")
    async with cluster.clients() as kube:
        assert (await source(cluster, kube).fetch(["a"])).account_uid == account["metadata"]["uid"]


async def test_a_lifetime_that_the_server_shortens_is_noted(cluster):
    short = json.dumps({"status": {"token": await cluster.token("app", seconds=600)}})
    async with cluster.clients() as kube:
        mine = source(cluster, kube, lifetime="12h")
        assert (await source(cluster, kube, lifetime="10m").fetch(["a"])).note == ""
        cluster.proxy.always = Fault(status=201, body=short)
        assert "granted a token of 600 s, not of 43200 s" in (await mine.fetch(["a"])).note


async def test_a_namespace_that_is_being_deleted_is_not_a_missing_role(cluster):
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "demo is being terminated"}
    body["details"] = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    cluster.proxy.always = Fault(status=403, body=json.dumps(body))
    async with cluster.clients() as kube:
        with pytest.raises(Rejected, match="being terminated") as caught:
            await source(cluster, kube).fetch(["a"])
    assert caught.value.remedy == "remove the identity, or create the namespace again once it is gone"


async def test_credentials_that_are_replaced_after_a_refusal_are_a_change(cluster):
    good, clock = (cluster.folder / "token").read_text(), FakeClock()
    async with cluster.clients(clock) as kube:
        mine = source(cluster, kube, clock=clock)
        change = asyncio.ensure_future(mine.changed())
        await mine.fetch(["a"])
        cluster.own_token("unknown.unknown.unknown")
        for _ in range(5):
            await clock.advance(5.0)
        assert not change.done(), "what was given is as good as it was"
        with pytest.raises(Rejected):
            await mine.fetch(["a"])
        await clock.advance(10.0)
        assert not change.done()
        cluster.own_token(good)
        async with asyncio.timeout(60):
            while not change.done():
                await clock.advance(5.0)
                await asyncio.sleep(0.01)


async def test_one_client_serves_all_identities_and_is_closed_with_the_toolbox(cluster):
    kube = cluster.clients()
    sources = [source(cluster, kube) for _ in range(8)]
    await asyncio.gather(*(one.fetch(["a"]) for one in sources))
    line = kube.client()._line
    assert cluster.proxy.count() == 8
    await kube.close()
    assert line._api.rest_client.pool_manager.closed
    await sources[0].fetch(["a"])  # and opened anew where one is used after all
    await kube.close()


async def test_what_nothing_asks_for_loads_nothing():
    program = "import sys, agent.app, agent.sources; sys.exit('kubernetes_asyncio' in sys.modules or 'aiohttp' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0


async def test_without_a_way_to_an_api_server_the_identity_is_rejected():
    toolbox = Toolbox(clock=FakeClock(), random=Random(1), counters=Counters(), http=None)
    found = KubernetesSource(convert({"serviceAccount": {"namespace": "a", "name": "b"}}, KubernetesSettings), "demo", toolbox)
    assert found.host == ""
    with pytest.raises(Rejected, match="demo: "):
        await found.fetch(["a"])


def test_an_identity_counts_for_the_namespace_and_the_api_server_of_its_service_account():
    from agent.identities.profiles import namespace

    account = {"namespace": "tenant1", "name": "app"}
    identity = {"name": "x", "source": {"type": "kubernetes", "serviceAccount": account}, "provider": {"type": "generic", "audiences": []}}
    assert namespace(convert(identity, Identity)) == "tenant1"
    kube = KubeClients(FakeClock(), {})
    toolbox = Toolbox(clock=FakeClock(), random=Random(1), counters=Counters(), http=None, kube=kube)
    hosts = {
        KubernetesSource(convert({"serviceAccount": account, **more}, KubernetesSettings), "x", toolbox).host
        for more in ({}, {}, {"kubeconfig": "./a"}, {"kubeconfig": "./b"})
    }
    assert len(hosts) == 3


@pytest.mark.parametrize(
    "account",
    [
        {"name": "app"},
        {"namespace": "", "name": "app"},
        {"namespace": "a.b", "name": "app"},
        {"namespace": "../kube-system", "name": "app"},
        {"namespace": "demo", "name": "../../secrets/x"},
        {"namespace": "demo", "name": "app\n"},
        {"namespace": "demo\n", "name": "app"},
        {"namespace": "demo", "name": "App"},
        {"namespace": "démo", "name": "app"},
        {"namespace": "n" * 64, "name": "app"},
        {"namespace": "demo", "name": "n" * 65536},
        {"namespace": "demo", "name": "a..b"},
    ],
)
def test_what_is_no_name_of_a_service_account_is_refused_by_the_configuration(account):
    with pytest.raises(msgspec.ValidationError):
        convert({"serviceAccount": account}, KubernetesSettings)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut=True),
        Fault(status=503),
        Fault(status=307),
        Fault(status=401),
        Fault(status=403, body='{"kind": "Status", "message": "you sent canary-7f3a-own-token"}'),
        Fault(status=201, body="not a JSON object"),
    ],
    ids=lambda fault: str(fault.status or "cut"),
)
async def test_no_failure_has_the_agents_own_token_in_it_or_behind_it(cluster, fault):
    cluster.own_token("canary-7f3a-own-token")
    cluster.proxy.always = fault
    async with cluster.clients() as kube:
        with pytest.raises((Rejected, Unavailable)) as caught:
            await source(cluster, kube).fetch(["a"])
    error = caught.value
    while error is not None:
        assert "canary-7f3a" not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
