"""Identities come, change and go while others run on; what one does wrong stays its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent.config.model import Config
from agent.counters import Counters
from agent.identities import assembly
from agent.identities.supervisor import Supervisor
from agent.model import Key
from agent.rotation.courier import Courier
from agent.settings import convert
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Toolbox
from tests.fakes import FakeClock, FakeProvider, FakeSink, FakeSource, settle

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"


class Cast:
    """The stand-ins that were built, by identity and by place; `withdrawn` and `closed` in their order."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.sources: dict[str, FakeSource] = {}
        self.providers: dict[str, FakeProvider] = {}
        self.sinks: dict[str, FakeSink] = {}
        self.withdrawn: list[str] = []
        self.closed: list[str] = []
        self.stuck: set[str] = set()
        """Places whose disk answers nothing that is asked about small files."""
        self.stubborn = False
        """Whether sinks refuse to give anything up."""

    def source(self, settings: Any, identity: str, toolbox: Toolbox) -> FakeSource:
        return self.sources.setdefault(identity, FakeSource(self.clock, lifetime=100.0))

    def provider(self, settings: Any, identity: str, toolbox: Toolbox) -> FakeProvider:
        return self.providers.setdefault(identity, FakeProvider(self.clock))

    def sink(self, settings: Any, identity: str, digest: str, toolbox: Toolbox) -> FakeSink:
        cast = self

        class Sink(FakeSink):
            async def withdraw(self) -> None:
                if cast.stubborn:
                    raise OSError("the disk says CANARY")
                await super().withdraw()
                cast.withdrawn.append(f"{identity} {settings.directory}")

            async def close(self) -> None:
                cast.closed.append(f"{identity} {settings.directory}")

        made = self.sinks[settings.directory] = Sink(self.clock, f"files:{settings.directory}")
        made.retaining.hanging = settings.directory in self.stuck
        return made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cast(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Cast:
    cast = Cast(clock)
    monkeypatch.setattr(assembly.sources, "build", cast.source)
    monkeypatch.setattr(assembly.providers, "build", cast.provider)
    monkeypatch.setattr(assembly.sinks, "build", cast.sink)
    return cast


def config(**directories: str | tuple[str, ...]) -> Config:
    """Each identity with its directory, or more of them; what follows a `#` is its token's audience."""
    identities = []
    for name, where in directories.items():
        places, _, audience = (where if isinstance(where, str) else " ".join(where)).partition("#")
        sinks = [{"type": "files", "directory": place} for place in places.split()]
        provider = {"type": "generic", "audiences": [audience or "demo"]}
        identities.append({"name": name, "source": {"type": "file", "path": "/token"}, "provider": provider, "sinks": sinks})
    found: Config = convert({"identities": identities}, Config)
    return found


@asynccontextmanager
async def running(cast: Cast, first: Config) -> AsyncIterator[tuple[Supervisor, Store]]:
    async def no_http() -> Any:
        raise AssertionError("nothing is sent")

    store = Store()
    toolbox = Toolbox(clock=cast.clock, random=Random(0), counters=Counters(), http=no_http)
    try:
        async with asyncio.TaskGroup() as group:
            supervisor = Supervisor(store, toolbox, Tasks(group, store, toolbox), {})
            await supervisor.apply(first)
            await settle()
            yield supervisor, store
            raise EOFError
    except* EOFError:
        pass


async def test_what_hangs_or_breaks_in_one_identity_delays_no_other(cast: Cast, clock: FakeClock) -> None:
    for name in ("hangs", "breaks"):
        cast.source(None, name, None)  # type: ignore[arg-type]
        cast.provider(None, name, None)  # type: ignore[arg-type]
    cast.sources["hangs"].script.hanging = True
    cast.providers["breaks"].script.fault = KeyError("CANARY")
    async with running(cast, config(hangs="/h", breaks="/b", disk="/d", good="/g")) as (_, store):
        cast.sinks["/d"].writing.hanging = True
        cast.sinks["/d"].reading.hanging = True
        for _ in range(1000):
            await clock.advance(1)
            assert store.delivered("good", clock.now()), "at every second"
        issued = [grant.token.issued_at for grant in cast.sinks["/g"].grants if grant.token]
        assert len(issued) > 8
        gaps = {round((after - before).total_seconds()) for before, after in pairwise(issued)}
        assert gaps <= {90, 91}, "each at its time"
        failure = store.record(Key("breaks")).failure  # type: ignore[union-attr]
        assert failure
        assert (failure.reaction, "CANARY" in failure.message) == ("defect", False)
        assert store.state("hangs", clock.now()) == store.state("breaks", clock.now()) == "missing"
        assert len(cast.sources["disk"].script.calls) > 8, "a hung disk costs no refresh"


async def test_a_disk_that_hangs_before_there_is_anything_to_write_delays_no_other(cast: Cast, clock: FakeClock) -> None:
    served = {"dialects": ["container"]}
    provider = {"type": "aws", "roleArn": "arn:aws:iam::123456789012:role/x", "region": "eu-west-1"}
    common = {"source": {"type": "file", "path": "/token"}, "provider": provider, "serve": served}
    names = ("hangs", "good", "too")
    both: Config = convert(
        {"identities": [{"name": name, "sinks": [{"type": "files", "directory": f"/{name}"}], **common} for name in names]}, Config
    )
    cast.stuck = {"/hangs"}
    async with running(cast, Config(identities=())) as (supervisor, store):
        applying = asyncio.ensure_future(supervisor.apply(both))
        await settle()
        assert store.delivered("good", clock.now())
        assert store.delivered("too", clock.now())
        assert not applying.done(), "what clients present is written before they can ask"
        applying.cancel()


async def test_what_did_not_change_is_not_touched_and_what_is_gone_is_withdrawn(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(stays="/s", goes="/g")) as (supervisor, store):
        held = store.newest(Key("stays"))
        await supervisor.apply(config(stays="/s", comes="/c"))
        await settle()
        assert store.newest(Key("stays")) is held
        assert cast.withdrawn == ["goes /g"]
        assert [profile.name for profile in store.profiles()] == ["stays", "comes"]
        assert store.delivered("comes", clock.now())
        await supervisor.close()
        assert sorted(cast.closed) == ["comes /c", "goes /g", "stays /s"]
        assert len(cast.withdrawn) == 1, "what was written stays"


async def test_an_old_directory_is_left_when_the_new_one_is_delivered(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(moves="/old")) as (supervisor, store):
        cast.sources["moves"].script.hanging = True
        await supervisor.apply(config(moves="/new#other"))
        await clock.advance(5)
        assert cast.withdrawn == []
        assert store.usable(Key("moves"), clock.now()), "the old credential is still handed out"
        assert cast.sinks["/new"].grants == [], "but is not written as if it were the new one"
        cast.sources["moves"].script.hanging = False
        await supervisor.apply(config(moves="/new#third"))  # and changed once more before that
        await settle()
        assert store.delivered("moves", clock.now())
        assert cast.withdrawn == ["moves /old"]


async def test_who_goes_while_moving_leaves_both_places_at_once(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(moves="/old")) as (supervisor, _):
        cast.sources["moves"].script.hanging = True
        await supervisor.apply(config(moves="/new#other"))
        await settle()
        await supervisor.apply(config())
        assert sorted(cast.withdrawn) == ["moves /new", "moves /old"]


async def test_who_moves_back_keeps_what_lies_there(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(moves="/old")) as (supervisor, store):
        cast.sources["moves"].script.hanging = True
        await supervisor.apply(config(moves="/new#other"))
        await settle()
        cast.sources["moves"].script.hanging = False
        await supervisor.apply(config(moves="/x/../old"))
        await clock.advance(20)
        assert cast.withdrawn == ["moves /new"], "the same place, however it is spelled"
        assert cast.closed.count("moves /old") == 1, "let go of, for the new sink to hold"
        assert store.delivered("moves", clock.now())


async def test_a_place_that_becomes_anothers_is_left_at_once(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(one="/a", two="/b")) as (supervisor, _):
        cast.sources["one"].script.hanging = True
        await supervisor.apply(config(one="/b#x", two="/a"))
        assert sorted(cast.withdrawn) == ["one /a", "two /b"]
        await supervisor.apply(config(one="/c#y", two="/a"))
        await settle()
        assert "one /b" not in cast.withdrawn, "kept until /c is delivered"
        await supervisor.apply(config(one="/c#y", two="/a", three="/b"))
        assert cast.withdrawn[-1] == "one /b"


async def test_a_place_that_cannot_be_given_up_keeps_nobody(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(goes="/g", too="/t")) as (supervisor, store):
        cast.stubborn = True
        await supervisor.apply(config(comes="/c"))
        await settle()
        assert [profile.name for profile in store.profiles()] == ["comes"]
        assert sorted(cast.closed) == ["goes /g", "too /t"]


async def test_a_changed_schedule_keeps_what_is_held(cast: Cast, clock: FakeClock) -> None:
    async with running(cast, config(one="/a")) as (supervisor, store):
        held = store.newest(Key("one"))
        again: Config = convert({"refresh": {"at": 0.5, "jitter": 0.0}, "identities": []}, Config)
        first = config(one="/a")
        await supervisor.apply(Config(identities=first.identities, refresh=again.refresh))
        await clock.advance(30)
        assert store.newest(Key("one")) is held
        assert cast.withdrawn == []


def digest_of(store: Store, name: str) -> str:
    found = store.profile(name)
    assert found
    return found.digest


@pytest.mark.parametrize("key", ["caFile", "kubeconfig"])
async def test_a_file_with_another_content_is_another_setting_at_reload(cast: Cast, clock: FakeClock, tmp_path: Path, key: str) -> None:
    path = tmp_path / "file"
    path.write_text("of one cluster")
    account = {"type": "kubernetes", "serviceAccount": {"namespace": "demo", "name": "app"}}
    source = {**account, "kubeconfig": str(path)} if key == "kubeconfig" else {"type": "file", "path": "/t"}
    azure = {"type": "azure", "tenantId": TENANT, "clientId": TENANT}
    provider = {**azure, "caFile": str(path)} if key == "caFile" else {"type": "generic", "audiences": ["a"]}
    text = {"name": "one", "source": source, "provider": provider, "sinks": [{"type": "files", "directory": "/d"}]}
    other = {"name": "two", "source": {"type": "file", "path": "/t"}, "provider": {"type": "generic", "audiences": ["a"]}}
    first: Config = convert({"identities": [text, other]}, Config)
    async with running(cast, first) as (supervisor, store):
        await settle()
        digests = [digest_of(store, "one")]
        untouched = supervisor._running["two"]
        for content in ("of one cluster", "of another cluster", None):
            path.write_text(content) if content else path.unlink()
            await supervisor.apply(first)
            await settle()
            digests.append(digest_of(store, "one"))
        assert digests[0] == digests[1]
        assert len({*digests}) == 3
        assert cast.withdrawn == []
        assert supervisor._running["two"] is untouched


async def test_a_run_time_variant_gets_a_keeper(cast: Cast, clock: FakeClock) -> None:
    cast.provider(None, "one", None).lifetime = 1000.0  # type: ignore[arg-type]
    async with running(cast, config(one="/a")) as (supervisor, store):
        welcome = asyncio.ensure_future(supervisor.run_variants())
        grant = await store.want(Key("one", "scope"), clock.now(), 5.0)
        assert grant.key.variant == "scope"
        assert cast.providers["one"].exchanged[-1][1] == "scope"
        welcome.cancel()


async def test_each_scope_of_an_azure_identity_is_kept_by_itself(cast: Cast, clock: FakeClock) -> None:
    cast.provider(None, "one", None).lifetime = 100.0  # type: ignore[arg-type]
    hosts = ("https://vault.azure.net", "https://storage.azure.com", "https://eventhubs.azure.net/")
    provider = {"type": "azure", "tenantId": TENANT, "clientId": TENANT, "scopes": [f"{host}/.default" for host in hosts]}
    chosen = {"name": "one", "source": {"type": "file", "path": "/token"}, "provider": provider}
    async with running(cast, convert({"identities": [chosen]}, Config)) as (_, store):
        await clock.advance(1000)
        assert all(store.usable(Key("one", variant), clock.now()) for variant in ("", *hosts[1:]))
        assert store.record(Key("one", hosts[0])) is None
        assert len(cast.sources["one"].script.calls) <= 14, "one token for all of them"


async def test_a_task_that_breaks_stays_with_its_identity(cast: Cast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    carry, broken = Courier.carry, [OverflowError("CANARY"), RecursionError("CANARY")]

    async def break_twice(courier: Courier) -> None:
        if courier._key.identity == "breaks" and broken:
            raise broken.pop()
        await carry(courier)

    monkeypatch.setattr(Courier, "carry", break_twice)
    async with running(cast, config(breaks="/b", good="/g")) as (_, store):
        assert store.delivered("good", clock.now())
        failure = store.record(Key("breaks")).failure  # type: ignore[union-attr]
        assert failure
        assert (failure.reaction, "CANARY" in failure.message) == ("defect", False)
        await clock.advance(10)
        assert not broken
        assert store.delivered("breaks", clock.now()), "it was started again"


async def test_a_start_that_breaks_is_tried_again_and_keeps_no_other_from_starting(
    cast: Cast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, broken = cast.provider, [RecursionError("CANARY"), UnicodeError("CANARY")]

    def break_twice(settings: Any, identity: str, toolbox: Toolbox) -> FakeProvider:
        if identity == "breaks" and broken:
            raise broken.pop()
        return build(settings, identity, toolbox)

    monkeypatch.setattr(assembly.providers, "build", break_twice)
    async with running(cast, config(breaks="/b", good="/g")) as (supervisor, store):
        assert store.delivered("good", clock.now())
        assert not store.ready(clock.now()), "it is known, and missing"
        failure = store.record(Key("breaks")).failure  # type: ignore[union-attr]
        assert failure
        assert (failure.reaction, "CANARY" in failure.message) == ("defect", False)
        await supervisor.apply(config(breaks="/b", good="/g"))
        await clock.advance(10)
        assert not broken
        assert store.delivered("breaks", clock.now())


async def test_a_start_that_breaks_ends_when_the_identity_goes(cast: Cast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def break_always(settings: Any, identity: str, toolbox: Toolbox) -> FakeProvider:
        tries.append(identity)
        raise RecursionError("CANARY")

    monkeypatch.setattr(assembly.providers, "build", break_always)
    async with running(cast, config(breaks="/b")) as (supervisor, store):
        await clock.advance(10)
        assert len(tries) > 2
        await supervisor.apply(config())
        tries.clear()
        await clock.advance(300)
        assert tries == []
        assert list(store.profiles()) == []
