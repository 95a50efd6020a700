"""Beside a hostile process that does all it can with connections, an honest SDK is served, and the agent stays as small as it was."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.everything import everything
from tests.e2e.test_hostile import ask

ATTACK = """
import socket, sys, time
port, own, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
head = "GET /aws/aws/credentials HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: %s\\r\\n" % own
kinds = [
    (head + "\\r\\n").encode() * 300,  # and nothing is read
    head[:20].encode(),  # never ends
    b"",
    (head + "\\r\\n").encode(),  # stays
    b"GET /aws/aws/credentials HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n" * 300,
    b"X: " + b"a" * 31000,
    b"\\r\\n" * 15000,
    b"GET / HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" + b"1;x=y\\r\\na\\r\\n" * 500,
]
held, made, last = [], 0, time.monotonic() + seconds
print("ready", flush=True)
while time.monotonic() < last:
    for _ in range(8):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        held.append(one)
    time.sleep(0.02)
    for one in held[-8:]:
        try:
            one.send(kinds[made % len(kinds)])
        except OSError:
            pass
        made += 1
    while len(held) > 1500:
        held.pop(0).close()
print(made, flush=True)
"""
BOTO3 = """
import sys, time
import botocore.session
failed, asked, last = 0, 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < last:
    found = botocore.session.Session().get_credentials()
    asked, failed = asked + 1, failed + (found is None)
print(asked, failed)
"""


def memory(pid: int) -> int:
    """Resident, at its highest, in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


@pytest.mark.alone  # botocore's second of patience is real
async def test_beside_an_attack_an_sdk_with_a_second_of_patience_and_one_try_is_served(daemon: Daemon) -> None:
    async with everything(daemon) as one:
        assert daemon.process
        for dialect in one.ways():
            await ask(one, dialect)
        before = memory(daemon.process.pid)
        attack = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", ATTACK, str(one.port), one.authorizations["aws"], "8", stdout=subprocess.PIPE
        )
        assert attack.stdout
        assert await attack.stdout.readline() == b"ready\n"
        await asyncio.sleep(2)  # there are more than a listener has open by now
        boto3 = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BOTO3, "4", stdout=subprocess.PIPE,
            env={**daemon.environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{one.port}/"},
        )  # fmt: skip
        began = time.monotonic()
        out, _ = await boto3.communicate()
        assert time.monotonic() - began < 15
        asked, failed = map(int, out.split())
        made = int(await attack.stdout.readline())
        await attack.wait()
        assert made > 1000, "it was an attack"
        assert (asked > 10, failed) == (True, 0), f"{failed} of {asked}"
        assert memory(daemon.process.pid) - before < 60_000
        assert [line for line in daemon.log() if line["level"] in {"error", "critical"}] == []
        await asyncio.to_thread(daemon.stop)
