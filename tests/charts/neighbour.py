"""A container beside the agent: asks for each identity with every authorization that this process can find.

`python -m tests.charts.neighbour REQUESTS`: {identity: [path, header]}, with AUTHORIZATION in the place of the text. The answer is JSON:
the status of each identity for each text, by where that was found. Nothing of the test's is imported.
"""

import http.client
import json
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

IDENTITIES = Path("/var/run/secrets/wi-agent")
TIMEOUT_SECONDS = 15


def texts():
    """Every text that could be an authorization, by where it was found: the pod's UID, and files that can be read."""
    found = {"": "nothing"}
    if pod := re.search(r"/pods/([0-9a-f-]{36})/", Path("/proc/self/mountinfo").read_text()):
        found["uid"] = pod[1]
    for identity in IDENTITIES.iterdir():
        try:
            found[identity.name] = (identity / "files" / "authorization").read_text()
        except OSError:
            continue
    return found


def status(path, header, text):
    connection = http.client.HTTPConnection("127.0.0.1", 9481, timeout=TIMEOUT_SECONDS)
    headers = {header: text} if header else {}
    connection.request("GET", path.replace("AUTHORIZATION", text), headers=headers)
    return connection.getresponse().status


def listening():
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", 9481)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("no agent listens")


def main(requests):
    listening()
    found = texts()
    asked = [(identity, where, *request, text) for identity, request in requests.items() for where, text in found.items()]
    with ThreadPoolExecutor(len(asked)) as pool:
        statuses = list(pool.map(lambda one: status(*one[2:]), asked))
    answers = {}
    for (identity, where, *_), code in zip(asked, statuses, strict=True):
        answers.setdefault(identity, {})[where] = code
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
