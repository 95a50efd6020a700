"""Keys that somebody else makes, mounted as the kubelet mounts a Secret: several agents sign with them, and none writes."""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from structlog.testing import capture_logs

from agent.config.model import IssuerBlock
from agent.errors import ConfigError, NotReady, Rejected
from agent.issuer import discovery
from agent.issuer import read_only as given_keys
from agent.issuer.keyring import Keyring
from agent.issuer.read_only import LOOK_EVERY, ReadOnlyKeyring
from agent.settings import Address, Url
from tests.fakes import FakeClock

HOUR, DAY = 3600.0, 86400.0
LENGTHS = {"every": 30 * DAY, "publish_before": DAY, "longest_lifetime": 2 * DAY}


ABSURD = {"longestLifetime": 10**400, "signsFrom": "9999-12-31T23:00:00+00:00"}


def edit(volume: Path, key: str) -> None:
    """Put a number that no agent wrote into the index."""
    document = json.loads((volume / "index.json").read_text())
    document["keys"][0][key] = ABSURD[key]
    (volume / "index.json").write_text(json.dumps(document))


class Secret:
    """A Secret, and the volumes that the kubelets make of it."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.maker = Keyring(folder / "maker", "ES256", **LENGTHS, clock=clock)
        self._made = folder / "maker"
        self._folder = folder
        self._generations = 0

    def mount(self, name: str = "volume", *, without: str = "") -> Path:
        """The volume, made or brought up to date; `without` such files."""
        volume, self._generations = self._folder / name, self._generations + 1
        generation = volume / f"..2026_01_01_00_00_00.{self._generations}"
        generation.mkdir(parents=True)
        before = (volume / "..data").resolve() if (volume / "..data").exists() else None
        for file in self._made.iterdir():
            if not (without and file.match(without)):
                shutil.copy(file, generation)
                (generation / file.name).chmod(0o644)
        (volume / "..data_tmp").symlink_to(generation.name)
        (volume / "..data_tmp").rename(volume / "..data")
        for file in generation.iterdir():
            if not (volume / file.name).is_symlink():
                (volume / file.name).symlink_to(f"..data/{file.name}")
        if before:
            shutil.rmtree(before)
            for link in volume.iterdir():
                if not link.exists():
                    link.unlink()
        return volume


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def secret(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Secret]:
    found = Secret(tmp_path, clock)
    async with found.maker:
        yield found


def given(volume: Path, clock: FakeClock, **lengths: float) -> ReadOnlyKeyring:
    return ReadOnlyKeyring(volume, **{**LENGTHS, **lengths}, clock=clock)


def signed(ring: Keyring, clock: FakeClock, lifetime: float = HOUR) -> str:
    return ring.keys.sign({"sub": "it", "exp": clock.now().timestamp() + lifetime})


def kid(text: str) -> str:
    return str(jwt.get_unverified_header(text)["kid"])


def kids(ring: Keyring) -> list[str]:
    return [str(key["kid"]) for key in ring.keys.public_keys()["keys"]]


def tree(folder: Path) -> dict[str, Any]:
    return {str(path): (path.lstat().st_mode, path.lstat().st_ino, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


async def look(clock: FakeClock, moment: float = LOOK_EVERY) -> None:
    """Lets that much time pass, and the agents have their look."""
    waiting = len(asleep(clock))
    await clock.advance(moment)
    async with asyncio.timeout(60):
        while len(asleep(clock)) < waiting:
            await asyncio.sleep(0.001)


def asleep(clock: FakeClock) -> list[Any]:
    return [entry for entry in clock._sleepers if not entry[2].done()]


@asynccontextmanager
async def running(*rings: ReadOnlyKeyring) -> AsyncIterator[None]:
    tasks = []
    for ring in rings:
        await ring.open()
        tasks.append(asyncio.ensure_future(ring.run()))
    await asyncio.sleep(0)
    yield
    for task in tasks:
        assert not task.done()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_agents_sign_with_the_key_whose_turn_it_is_and_none_writes(secret: Secret, clock: FakeClock) -> None:
    volumes = [secret.mount("one"), secret.mount("two")]
    before = [tree(volume) for volume in volumes]
    rings = [given(volume, clock) for volume in volumes]
    async with running(*rings):
        for ring in rings:
            text = signed(ring, clock)
            assert kid(text) == kid(signed(secret.maker, clock))
            key = jwt.PyJWK(secret.maker.keys.public_keys()["keys"][0])
            assert jwt.decode(text, key, algorithms=["ES256"], options={"verify_exp": False})["sub"] == "it"
            assert ring.keys.public_keys() == secret.maker.keys.public_keys()
            assert ring.keys.states() == secret.maker.keys.states()
            assert ring.keys.algorithms() == ["ES256"]
        await look(clock)
        clock.jump(100 * DAY)  # rotation is somebody else's
        await look(clock)
    assert [tree(volume) for volume in volumes] == before


async def test_a_key_set_cached_six_hours_verifies_every_token_over_rotations(secret: Secret, clock: FakeClock) -> None:
    """One kubelet is at once, the other six hours late."""
    prompt, late = given(secret.mount("prompt"), clock), given(secret.mount("late"), clock)
    signers: set[str] = set()
    async with running(prompt, late):
        cached = kids(secret.maker)
        for step in range(4 * 70):
            await secret.maker.rotate()
            secret.mount("prompt")
            if step:
                secret.mount("late") if step % 2 else None
            for ring in (prompt, late):
                signer = kid(signed(ring, clock, 2 * DAY))
                signers.add(signer)
                assert signer in cached, "taken from either agent a while ago"
            assert kid(signed(prompt, clock)) == kid(signed(late, clock))
            cached = kids(late if step % 2 else prompt)
            clock.jump(6 * HOUR - LOOK_EVERY)
            await look(clock)
        assert kids(prompt) == kids(secret.maker)
    assert len(signers) == 3


async def test_a_changed_secret_is_taken_over_at_the_next_look(secret: Secret, clock: FakeClock) -> None:
    volume = secret.mount()
    ring = given(volume, clock)
    async with running(ring):
        clock.jump(29 * DAY)
        await secret.maker.rotate()
        secret.mount()
        with capture_logs() as logs:
            await look(clock)
            assert kids(ring) == kids(secret.maker)
            assert len(kids(ring)) == 2
            clock.jump(DAY)
            await look(clock)
        assert kid(signed(ring, clock)) == kids(secret.maker)[1]
        assert [entry["event"] for entry in logs] == ["key.taken_over", "key.signing"], "once each"


@pytest.mark.parametrize("how", ["without a key", "without the index", "empty", "garbage", "planted", *ABSURD])
async def test_what_cannot_be_used_is_said_once_and_the_keys_at_hand_sign_on(secret: Secret, clock: FakeClock, how: str) -> None:
    volume = secret.mount()
    ring = given(volume, clock)
    async with running(ring):
        before = kids(ring)
        secret.mount(without={"without a key": "*.pem", "without the index": "*.json", "empty": "*"}.get(how, ""))
        if how == "garbage":
            (volume / "index.json").write_text("{")
        if how == "planted":
            (volume / "index.json").resolve().chmod(0o666)
        if how in ABSURD:
            edit(volume, how)
        with capture_logs() as logs:
            for _ in range(3):
                await look(clock)
        (said,) = logs
        assert said["event"] == "key.not_taken_over"
        assert str(volume) in said["reason"]
        assert said["remedy"]
        assert kids(ring) == before
        assert kid(signed(ring, clock)) == before[0]
        clock.jump(29 * DAY)
        await secret.maker.rotate()
        secret.mount()
        await look(clock)
        assert len(kids(ring)) == 2


async def test_a_disk_that_hangs_holds_one_thread_and_is_read_on_when_it_answers(
    secret: Secret, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_keys, "DISK_TIMEOUT_SECONDS", 0.05)
    volume = secret.mount()
    ring = given(volume, clock)
    answers, usual, inside = threading.Event(), ring._store.glance, []

    def hang() -> Any:
        inside.append(1)
        answers.wait(5)
        return usual()

    async with running(ring):
        clock.jump(29 * DAY)
        await secret.maker.rotate()
        secret.mount()
        monkeypatch.setattr(ring._store, "glance", hang)
        with capture_logs() as logs:
            for _ in range(3):
                await look(clock)
        assert [(entry["event"], entry["reason"]) for entry in logs] == [("key.not_taken_over", "the disk does not answer")]
        assert len(inside) == 1
        assert len(kids(ring)) == 1, "those at hand"
        answers.set()
        while len(kids(ring)) < 2:
            await look(clock)


async def test_a_secret_that_is_not_there_yet_is_waited_for(secret: Secret, clock: FakeClock, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    ring = given(volume, clock)
    async with running(ring):
        with pytest.raises(NotReady, match="no key yet") as caught:
            signed(ring, clock)
        assert "index.json" in caught.value.remedy
        assert ring.keys.states() == []
        await look(clock)
        secret.mount()
        await look(clock)
        assert kid(signed(ring, clock)) == kids(secret.maker)[0]


@pytest.mark.parametrize(
    ("how", "reason", "remedy"),
    [
        ("nothing", "No such file", "fill it"),
        ("key", "cannot be read: No such file", "fill it"),
        ("writable", "can be changed by others", "let no other user write there"),
        ("writable key", "can be changed by others", "let no other user write there"),
        ("group's key", "can be changed by others", "let no other user write there"),
        *((key, "index.json is not the index that the agent wrote", "fill it") for key in ABSURD),
        ("owner", "can be changed by others: it belongs to uid 4242", "let no other user write there"),
    ],
)
async def test_at_the_start_what_cannot_be_used_is_refused(secret: Secret, clock: FakeClock, how: str, reason: str, remedy: str) -> None:
    volume = secret.mount(without="*.pem" if how == "key" else "")
    pem = next((path.resolve() for path in volume.glob("*.pem")), volume)
    match how:
        case "nothing":
            shutil.rmtree(volume)
        case "writable":
            (volume / "..data").resolve().chmod(0o777)
        case "writable key":
            pem.chmod(0o646)
        case "group's key":
            pem.chmod(0o664)
        case "longestLifetime" | "signsFrom":
            edit(volume, how)
        case "owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give files away")
            os.chown(pem, 4242, -1)
    with pytest.raises(ConfigError, match=reason) as caught:
        await given(volume, clock).open()
    assert remedy in caught.value.remedy


async def test_a_plain_directory_serves_as_well(secret: Secret, clock: FakeClock, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(tmp_path / "maker", plain)
    before = tree(plain)
    ring = given(plain, clock)
    async with running(ring):
        assert kid(signed(ring, clock)) == kids(secret.maker)[0]
        await look(clock)
    assert tree(plain) == before


async def test_no_token_outlives_what_its_key_was_made_for(secret: Secret, clock: FakeClock) -> None:
    ring = given(secret.mount(), clock, longest_lifetime=10 * DAY)
    await ring.open()
    assert signed(ring, clock, 2 * DAY)
    with pytest.raises(Rejected, match="longer than its key is published"):
        signed(ring, clock, 2 * DAY + 1)
    shorter = given(secret.mount(), clock, longest_lifetime=DAY)
    await shorter.open()
    with pytest.raises(Rejected, match=r"issuer\.lifetime\.max"):
        signed(shorter, clock, DAY + 1)


async def test_an_agent_that_would_make_keys_there_is_told_what_to_set(secret: Secret, clock: FakeClock) -> None:
    volume = secret.mount()
    before = tree(volume)
    with pytest.raises(ConfigError) as caught:
        await Keyring(volume, "ES256", **LENGTHS, clock=clock).open()
    assert "issuer.readOnly: true" in caught.value.remedy
    assert tree(volume) == before


async def test_the_configuration_chooses_and_an_export_holds_what_lies_there(secret: Secret, clock: FakeClock, tmp_path: Path) -> None:
    volume = secret.mount()
    before = tree(volume)
    block = IssuerBlock(url=Url("https://issuer.example"), listen=(Address("127.0.0.1", 0),), state=str(volume), read_only=True)
    async with discovery.keyring_of(block, clock) as ring:
        assert kid(signed(ring, clock)) == kids(secret.maker)[0]
    await discovery.export(block, tmp_path / "site", clock)
    assert json.loads((tmp_path / "site" / "jwks").read_text()) == secret.maker.keys.public_keys()
    assert tree(volume) == before
