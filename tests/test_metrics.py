"""What a scrape shows of every state an identity can be in, and that nothing is left of one that is gone."""

import shutil
import subprocess
from datetime import timedelta
from functools import partial
from typing import get_args

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client.parser import text_string_to_metric_families

from agent.clock import Clock
from agent.counters import Counters, TaskKind
from agent.errors import Rejected, Unavailable
from agent.metrics import RESULTS, WRITES, Collector, expose
from agent.model import Grant, Key
from agent.record import Profile
from agent.serving.admin import AdminEndpoint
from agent.store import Store
from tests.fakes import START, FakeClock, FakeCredential, a_token, delivery_of

HOUR = 3600.0
SINK = "files:/one"


class Reloads:
    """As the last reading of the configuration went."""

    successful = True
    succeeded_at = START


class Scene:
    """A store that a test fills by hand, and its scrape."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.counters = Counters()
        self.reloads = Reloads()
        self.keys: list[tuple[str, str, object]] = []
        self.collector = Collector(self.store, self.counters, self.clock, self.reloads, lambda: self.keys)  # type: ignore[arg-type,return-value]
        self.enrol("one", SINK)

    def enrol(self, name: str, *sinks: str, required: bool = True) -> None:
        self.store.enrol(Profile(name=name, digest="d", source="issuer", provider="aws", sinks=sinks, required=required))

    def grant(self, name: str = "one", *, delivered: bool = True) -> Grant:
        now = self.clock.now()
        credential = FakeCredential(now, now + timedelta(hours=2))
        grant = self.store.granted(Grant(key=Key(name), digest="d", token=a_token(now, HOUR), credential=credential))
        if delivered:
            for sink in self.store.profile(name).sinks:  # type: ignore[union-attr]
                self.store.sink_checked(grant.key, sink, now, generation=grant.generation, delivery=delivery_of(grant))
        return grant

    def text(self) -> str:
        return expose(self.collector, "text/plain")[0].decode()

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Of one metric, by the values of its labels in the order of their names."""
        samples = [sample for family in text_string_to_metric_families(self.text()) for sample in family.samples if sample.name == name]
        return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in samples}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_state_is_counted_also_at_nought(scene: Scene) -> None:
    for name in ("two", "three", "four"):
        scene.enrol(name)
        scene.grant(name)
    assert scene.values("wi_agent_tokens") == {("fresh",): 3, ("stale",): 0, ("expired",): 0, ("missing",): 1}
    scene.grant()
    scene.clock.jump(0.83 * HOUR)
    scene.grant("two")
    assert scene.values("wi_agent_tokens") == {("fresh",): 1, ("stale",): 3, ("expired",): 0, ("missing",): 0}
    scene.clock.jump(0.2 * HOUR)
    assert scene.values("wi_agent_tokens") == {("fresh",): 1, ("stale",): 0, ("expired",): 3, ("missing",): 0}


def test_what_is_held_and_what_lies_there_have_times_of_their_own(scene: Scene) -> None:
    scene.grant()
    began = START.timestamp()
    scene.clock.jump(60)
    scene.grant(delivered=False)
    expiry = {("one", "token"): began + 60 + HOUR, ("one", "credential"): began + 60 + 2 * HOUR}
    assert scene.values("wi_agent_token_expiry_timestamp_seconds") == expiry
    assert set(scene.values("wi_agent_token_issued_timestamp_seconds").values()) == {began + 60}
    delivered = {("one", "token", SINK): began + HOUR, ("one", "credential", SINK): began + 2 * HOUR}
    assert scene.values("wi_agent_delivered_expiry_timestamp_seconds") == delivered


def test_attempts_are_counted_by_closed_sets_of_labels(scene: Scene) -> None:
    assert scene.values("wi_agent_refresh_total") == {("one", result): 0 for result in RESULTS}
    assert scene.values("wi_agent_writes_total") == {(result, SINK): 0 for result in WRITES}
    for seconds, result in ((0.004, "success"), (0.3, "unavailable"), (11, "unavailable")):
        scene.counters.refreshed("one", "aws", result, seconds)
    scene.counters.writes[SINK, "rejected"] += 1
    scene.counters.handed_out_stale["one", "endpoint"] += 2
    for error in (Unavailable("no"), Rejected("no")):
        scene.store.attempted(Key("one"), error, scene.clock.now())
    assert scene.values("wi_agent_refresh_total")["one", "unavailable"] == 2
    buckets = scene.values("wi_agent_refresh_duration_seconds_bucket")
    assert (buckets["0.005", "aws"], buckets["0.5", "aws"], buckets["10.0", "aws"], buckets["+Inf", "aws"]) == (1, 2, 2, 3)
    assert scene.values("wi_agent_refresh_duration_seconds_sum") == {("aws",): 11.304}
    assert scene.values("wi_agent_writes_total") == {(result, SINK): int(result == "rejected") for result in WRITES}
    assert scene.values("wi_agent_stale_tokens_total") == {("one", "endpoint"): 2, ("one", "helper"): 0}
    assert scene.values("wi_agent_refresh_failures_consecutive") == {("one",): 2}
    scene.store.attempted(Key("one"), None, scene.clock.now())
    assert scene.values("wi_agent_refresh_failures_consecutive") == {("one",): 0}


def test_the_process_speaks_of_its_configuration_and_keys(scene: Scene) -> None:
    scene.keys = [("k1", "signing", START)]
    assert scene.values("wi_agent_issuer_key_state_timestamp_seconds") == {("k1", "signing"): START.timestamp()}
    assert scene.values("wi_agent_config_last_reload_successful") == {(): 1}
    scene.reloads.successful = False
    assert scene.values("wi_agent_config_last_reload_successful") == {(): 0}
    assert scene.values("wi_agent_config_last_reload_success_timestamp_seconds") == {(): START.timestamp()}
    assert list(scene.values("wi_agent_build_info").values()) == [1]
    assert scene.values("wi_agent_identity_info") == {("one", "aws", "issuer"): 1}


def test_nothing_is_left_of_an_identity_that_is_gone(scene: Scene) -> None:
    scene.grant()
    scene.counters.refreshed("one", "aws", "success", 0.1)
    scene.counters.writes[SINK, "success"] += 1
    scene.counters.handed_out_valid["one", "endpoint"] += 1
    scene.store.forget("one")
    scene.counters.forget("one", (SINK,))
    assert '"one"' not in scene.text()
    assert SINK not in scene.text()


def test_no_text_of_a_configuration_breaks_the_format(scene: Scene) -> None:
    scene.enrol("odd", 'files:/a"b\\c\nd')
    scene.grant("odd")
    assert scene.values("wi_agent_writes_total")["success", 'files:/a"b\\c\nd'] == 0
    if not shutil.which("promtool"):
        pytest.skip("needs promtool, of Debian's package prometheus")
    done = subprocess.run(["promtool", "check", "metrics"], input=scene.text(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
@pytest.mark.parametrize("version", ["x", "1.", ".", "1.a", "\xff", "", "9" * 5000])
def test_a_version_that_is_none_gets_a_scrape_all_the_same(kind: str, version: str) -> None:
    body, content_type = expose(Scene().collector, f"{kind}; version={version}")
    assert b"wi_agent_build_info" in body
    assert content_type.isascii()


def test_a_scraper_gets_the_format_it_asks_for(scene: Scene) -> None:
    body, content_type = expose(scene.collector, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert expose(scene.collector, "")[1].startswith("text/plain")


async def ask(scene: Scene, path: str, method: str = "GET") -> tuple[int, str]:
    clock: Clock = scene.clock
    answer = await AdminEndpoint(scene.store, clock, partial(expose, scene.collector)).answer(make_mocked_request(method, path))
    return answer.status, getattr(answer, "text", "") or ""


async def test_ready_is_who_has_every_required_identity_delivered_and_unexpired(scene: Scene) -> None:
    scene.enrol("optional", "files:/o", required=False)
    assert await ask(scene, "/readyz") == (503, "one: missing, not delivered everywhere\n")
    scene.grant(delivered=False)
    assert (await ask(scene, "/readyz"))[0] == 503, "held is not delivered"
    scene.grant()
    assert await ask(scene, "/readyz") == (200, "ok\n")
    assert (await ask(scene, "/readyz/optional"))[0] == 503
    assert (await ask(scene, "/readyz/nobody"))[0] == 404
    scene.clock.jump(0.9 * HOUR)
    assert await ask(scene, "/readyz") == (200, "ok\n"), "stale works"
    scene.clock.jump(0.2 * HOUR)
    assert (await ask(scene, "/readyz"))[0] == 503, "expired does not"
    assert await ask(scene, "/healthz") == (200, "ok\n"), "which no restart would mend"


async def test_health_names_the_tasks_that_are_dead_or_hung(scene: Scene) -> None:
    unwell = ["task reload is dead", "task delivery one to files:/x is hung, 90 s past its turn"]
    endpoint = AdminEndpoint(scene.store, scene.clock, partial(expose, scene.collector), lambda: unwell)
    answer = await endpoint.answer(make_mocked_request("GET", "/healthz"))
    assert isinstance(answer, web.Response)
    assert (answer.status, answer.content_type, answer.text) == (503, "text/plain", "\n".join(unwell) + "\n")


async def test_failures_of_every_kind_of_task_are_counted_from_nought(scene: Scene) -> None:
    scene.counters.task_failures["reload"] += 2
    counted = scene.values("wi_agent_task_failures_total")
    assert set(counted) == {(kind,) for kind in get_args(TaskKind)}
    assert (counted["reload",], counted["serviceaccount",]) == (2, 0)


async def test_the_admin_listener_answers_get_for_its_paths_and_nothing_else(scene: Scene) -> None:
    scene.grant()
    for path, method, status in (
        ("/metrics", "GET", 200),
        ("/metrics", "HEAD", 200),
        ("/metrics", "POST", 405),
        ("/healthz", "DELETE", 405),
        ("/", "GET", 404),
        ("/metrics/", "GET", 404),
        ("/status", "GET", 404),
        ("/readyz/one/", "GET", 404),
    ):
        assert (await ask(scene, path, method))[0] == status, (method, path)
