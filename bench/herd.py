"""200 first requests at once, where the STS takes 300 ms: how long until the last is answered, against one request alone.

Each time an identity is added to a running agent, and asked for as soon as the agent knows it.
"""

import signal
import socket
import tempfile
import time
import urllib.error
from pathlib import Path

from bench import figures
from bench.cloud import AUTHORIZATION, PATH, Agent, agent, configure, credential, sts
from bench.subjects import Subject, listening, until

ROUNDS = 9
DELAY = 0.3
CROWD = 200


def main() -> None:
    figures.title(f"{CROWD} first requests at once, where the STS takes {DELAY * 1000:.0f} ms, against one alone")
    with sts(3600, DELAY) as upstream, tempfile.TemporaryDirectory() as name, agent(Path(name), upstream) as ours:
        until(lambda: listening(ours), "listening", ours)
        credential(ours)
        alone, crowd = list[float](), list[float]()
        for number in range(1, 2 * ROUNDS + 1):
            add(ours, upstream, number)
            (crowd if number % 2 else alone).append(ask(ours.served, number, CROWD if number % 2 else 1) * 1000)
            before = ours.refreshes()
            if before != number + 1:
                raise SystemExit(f"{before} exchanges for {number + 1} identities")
    figures.ratio("until the last is answered", crowd, alone, "ms", goal=1.2)


def add(ours: Agent, upstream: Subject, number: int) -> None:
    """Returns when the agent has taken the identity up."""
    configure(ours.folder, number + 1, upstream, ours.served, ours.port)
    ours.process.send_signal(signal.SIGHUP)

    def known() -> bool:
        try:
            ours.get(f"/readyz/i{number}")
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code != 404
        return True

    until(known, "taken up", ours)


def ask(port: int, number: int, times: int) -> float:
    """Seconds until the last of so many requests is answered, each with 200."""
    request = f"GET {PATH.format(number)} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {AUTHORIZATION}\r\nConnection: close\r\n\r\n"
    began = time.perf_counter()
    crowd = [socket.socket() for _ in range(times)]
    for one in crowd:
        one.settimeout(0)
        one.connect_ex(("127.0.0.1", port))
    for one in crowd:
        one.settimeout(None)
        one.sendall(request.encode())
    for one in crowd:
        answer = b""
        while part := one.recv(65536):
            answer += part
        one.close()
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(answer.decode())
    return time.perf_counter() - began
