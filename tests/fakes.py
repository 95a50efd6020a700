"""Stand-ins that tests steer: a clock that moves when told to, a source and a provider that do as told."""

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from agent.liveness import within
from agent.model import Credential, Delivery, Grant, IdentityToken, Location, Paths, PriorDelivery, Secret
from agent.record import credential_span, token_span

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Stands still until `advance` moves it, waking sleepers in order."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), next(self._order), future))
        with within(seconds):
            await future

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        if event.is_set() or seconds <= 0:
            return event.is_set()
        sleeper = asyncio.ensure_future(self.sleep(seconds))
        waiter = asyncio.ensure_future(event.wait())
        try:
            with within(seconds):
                await asyncio.wait({sleeper, waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waiter.cancel()
        return event.is_set()

    def jump(self, seconds: float) -> None:
        """The wall clock is set, forwards or backwards; nobody's timer fires for it, as when the machine slept."""
        self._now += timedelta(seconds=seconds)
        self._sleepers = [(deadline + timedelta(seconds=seconds), order, future) for deadline, order, future in self._sleepers]

    async def advance(self, seconds: float) -> None:
        """Time passes; every sleeper due in it wakes at its own moment."""
        target = self._now + timedelta(seconds=seconds)
        await settle()
        while True:
            self._sleepers = [entry for entry in self._sleepers if not entry[2].done()]
            heapq.heapify(self._sleepers)
            if not self._sleepers or self._sleepers[0][0] > target:
                break
            deadline, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            future.set_result(None)
            await settle()
        self._now = target
        await settle()

    async def until(self, done: Callable[[], bool], *, at_most: float = 600.0, step: float = 1.0) -> None:
        """Lets time pass in steps until something is so."""
        passed = 0.0
        await settle()
        while not done():
            assert passed < at_most, f"not so after {at_most} s"
            await self.advance(step)
            passed += step


async def settle(rounds: int = 25) -> None:
    """Lets every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class FakeCredential:
    """A credential with times of its own, or with none."""

    def __init__(self, issued_at: datetime | None = None, expires_at: datetime | None = None, variant: str = "") -> None:
        self.issued_at = issued_at
        self.expires_at = expires_at
        self.variant = variant

    def files(self, paths: Paths) -> Mapping[str, Secret]:
        return {"config": Secret("{}")}

    def document(self) -> Mapping[str, Any]:
        return {"variant": self.variant}


class Script:
    """What a stand-in does at each call: raises what it is told to, hangs, or does its usual thing."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.calls: list[datetime] = []
        self.fault: BaseException | None = None
        """Raised at every call while set."""
        self.hanging = False
        """Never answers while set."""

    async def play(self) -> None:
        self.calls.append(self.clock.now())
        if self.hanging:
            await asyncio.Event().wait()
        if self.fault:
            raise self.fault


class FakeSource:
    """Gives tokens of so many seconds, issued so many seconds ago."""

    host = ""

    def __init__(self, clock: FakeClock, *, lifetime: float = 3600.0, age: float = 0.0) -> None:
        self.script = Script(clock)
        self.lifetime = lifetime
        self.age = age
        self.same: IdentityToken | None = None
        """Given again and again while set."""
        self.asked_for: list[Sequence[str]] = []
        self.change = asyncio.Event()
        self.change_fault: BaseException | None = None
        self._ids = count(1)

    async def fetch(self, audiences: Sequence[str]) -> IdentityToken | None:
        self.asked_for.append(tuple(audiences))
        await self.script.play()
        if self.same:
            return self.same
        issued = self.script.clock.now() - timedelta(seconds=self.age)
        return a_token(issued, self.lifetime, f"t{next(self._ids)}")

    async def changed(self) -> None:
        if self.change_fault:
            raise self.change_fault
        await self.change.wait()
        self.change.clear()


class FakeProvider:
    """Gives credentials of so many seconds; none of their own where `lifetime` is None."""

    def __init__(self, clock: FakeClock, *, lifetime: float | None = None, host: str = "") -> None:
        self.script = Script(clock)
        self.lifetime = lifetime
        self.host = host
        self.audiences = ("sts.example",)
        self.same: FakeCredential | None = None
        self.exchanged: list[tuple[str, str]] = []
        """Of each exchange the token's id and the variant."""
        self.delay = 0.0

    async def exchange(self, token: IdentityToken | None, variant: str = "") -> Credential:
        self.exchanged.append((token.id if token else "", variant))
        await self.script.play()
        if self.delay:
            await self.script.clock.sleep(self.delay)
        if self.same:
            return self.same
        if self.lifetime is None:
            return FakeCredential(variant=variant)
        now = self.script.clock.now()
        return FakeCredential(now, now + timedelta(seconds=self.lifetime), variant)

    def restore(self, prior: PriorDelivery) -> Credential | None:
        found = prior.delivery
        return FakeCredential(found.credential_issued_at, found.credential_expires_at)


class FakeSink:
    """Holds the last grant it was given, and says so when read."""

    def __init__(self, clock: FakeClock, name: str = "files:/fake") -> None:
        self.name = name
        self.location = Location("files", name.removeprefix("files:"))
        self.writing = Script(clock)
        self.reading = Script(clock)
        self.grants: list[Grant] = []
        self.held: Delivery | None = None
        self.deaf = False
        """Takes grants and keeps none while set."""
        self.prior: PriorDelivery | None = None
        self.adopting = Script(clock)
        self.retaining = Script(clock)
        self.kept: dict[str, Secret] = {}

    async def write(self, grant: Grant) -> None:
        await self.writing.play()
        self.grants.append(grant)
        if not self.deaf:
            self.held = delivery_of(grant)

    async def read(self) -> Delivery | None:
        await self.reading.play()
        return self.held

    async def adopt(self) -> PriorDelivery | None:
        await self.adopting.play()
        return self.prior

    async def recall(self, name: str) -> Secret | None:
        await self.retaining.play()
        return self.kept.get(name)

    async def retain(self, name: str, text: Secret) -> None:
        await self.retaining.play()
        self.kept[name] = text

    async def withdraw(self) -> None:
        self.held = None

    async def withdraw_all(self) -> None:
        await self.withdraw()

    async def close(self) -> None:
        """Nothing is open."""


def a_token(issued: datetime = START, lifetime: float = 3600.0, name: str = "t0") -> IdentityToken:
    """A token whose text is not a JWT: nothing reads it."""
    return IdentityToken(
        value=Secret(f"canary-{name}"),
        issuer="https://issuer.example",
        subject="demo",
        audiences=("sts.example",),
        issued_at=issued,
        expires_at=issued + timedelta(seconds=lifetime),
        id=name,
    )


def delivery_of(grant: Grant, generation: int | None = None) -> Delivery:
    """What a sink that holds the grant would say."""
    token, credential = token_span(grant), credential_span(grant)
    return Delivery(
        generation=grant.generation if generation is None else generation,
        token_issued_at=token and token.issued_at,
        token_expires_at=token and token.expires_at,
        credential_issued_at=credential and credential.issued_at,
        credential_expires_at=credential and credential.expires_at,
    )
