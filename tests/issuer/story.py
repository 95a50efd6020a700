"""Lives through two rotations of an issuer's key, killed before the n-th call to the file system, for every n.

Run as a program of its own by test_keyring.py, because it forks: each life is a child, ended by os._exit in mid-call,
which leaves the file system as SIGKILL would. The parent then opens the state and holds it against the child's ledger.
"""

# ruff: noqa: T201  # a program: it prints its result
import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import jwt
import structlog

from agent.issuer.keyring import Keyring
from tests.fakes import START, FakeClock

KILLED = 9
MOMENTS = (0, 60, 100, 140, 160, 200, 240)
LENGTHS = {"every": 100.0, "publish_before": 40.0, "longest_lifetime": 30.0, "cache": 10.0}
CALLS = ("open", "fsync", "rename", "unlink", "mkdir", "fchmod", "listdir", "close")


def mortal(last: int) -> None:
    """From here on, the process dies before its `last`-th call."""
    made = 0

    def counted(call):
        def instead(*arguments, **keywords):
            nonlocal made
            made += 1
            if made == last:
                os._exit(KILLED)
            return call(*arguments, **keywords)

        return instead

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def keyring(state: Path, clock: FakeClock) -> Keyring:
    return Keyring(state, "ES256", clock=clock, **LENGTHS)


def sign(ring: Keyring, clock: FakeClock) -> tuple[float, str]:
    expiry = clock.now().timestamp() + LENGTHS["longest_lifetime"]
    return expiry, ring.keys.sign({"exp": expiry})


async def live(state: Path, ledger: int) -> None:
    clock = FakeClock()
    async with keyring(state, clock) as ring:
        for moment in MOMENTS:
            clock.jump((START + timedelta(seconds=moment) - clock.now()).total_seconds())
            os.write(ledger, json.dumps({"moment": moment}).encode() + b"\n")
            await ring.rotate()
            shown = [key["kid"] for key in ring.keys.public_keys()["keys"]]
            os.write(ledger, json.dumps({"moment": moment, "token": sign(ring, clock), "shown": shown}).encode() + b"\n")


async def look(state: Path, ledger: Path) -> int:
    """The state as the next process finds it; raises where it breaks a promise that the ledger holds."""
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    begun = START + timedelta(seconds=entries[-1]["moment"] if entries else 0)
    clock = FakeClock(begun)
    tokens = [entry["token"] for entry in entries if "token" in entry]
    seen_from = {}
    for entry in entries:
        for kid in entry.get("shown", ()):
            seen_from.setdefault(kid, START + timedelta(seconds=entry["moment"]))
    first = next(iter(seen_from), None)
    async with keyring(state, clock) as ring:
        found = {path.name for path in state.iterdir()}
        assert found == {"index.json", *(f"key-{kid}.pem" for kid, _, _ in ring.keys.states())}, found
        for kid, phase, since in ring.keys.states():
            if phase == "published":
                seen_from[kid] = max(since, seen_from.get(kid, since))
        for _ in range(30):
            await ring.rotate()
            now = clock.now()
            published = {key["kid"]: jwt.PyJWK(key) for key in ring.keys.public_keys()["keys"]}
            for kid in published:
                seen_from.setdefault(kid, now)
            tokens.append(sign(ring, clock))
            signer = jwt.get_unverified_header(tokens[-1][1])["kid"]
            first = first or signer
            assert signer == first or now - seen_from[signer] >= timedelta(seconds=LENGTHS["publish_before"]), (signer, now)
            for expiry, text in tokens:
                if expiry > now.timestamp():
                    jwt.decode(text, published[jwt.get_unverified_header(text)["kid"]], options={"verify_exp": False}, algorithms=["ES256"])
            tokens = [one for one in tokens if one[0] > now.timestamp()]
            clock.jump(10)
    return len(entries)


def main(root: Path) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    deaths = strays = tokens = 0
    while True:
        state, ledger = root / f"state{deaths}", root / f"ledger{deaths}"
        child = os.fork()
        if not child:
            descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            mortal(deaths + 1)
            try:
                asyncio.run(live(state, descriptor))
                os._exit(0)
            except BaseException as error:  # a child must not go on as its parent
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in {0, KILLED}, code
        present = {path.name for path in state.iterdir()} if state.exists() else set()
        index = state / "index.json"
        named = {f"key-{entry['kid']}.pem" for entry in json.loads(index.read_text())["keys"]} if index.exists() else set()
        strays += bool(present - named - {"index.json"})
        try:
            tokens += asyncio.run(look(state, ledger))
        except BaseException:
            print(f"killed before call {deaths + 1}", file=sys.stderr)
            raise
        if code == 0:
            break
        deaths += 1
    print(json.dumps({"deaths": deaths, "strays": strays, "tokens": tokens}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
