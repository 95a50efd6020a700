"""What the process does to itself, seen from outside: in another process, for it cannot be undone."""

import json
import subprocess
import sys

HARDENED = """
import ctypes, json, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {allowed}))
from agent.process import harden
harden()
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE), dumpable]))
"""


def hardened(allowed: int) -> list[object]:
    ran = subprocess.run([sys.executable, "-c", HARDENED.format(allowed=allowed)], check=True, capture_output=True, text=True)
    found: list[object] = json.loads(ran.stdout)
    return found


def test_nobody_may_read_its_memory_and_it_may_open_as_many_files_as_it_is_allowed() -> None:
    assert hardened(256) == [[256, 256], [0, 0], 0]


def test_where_it_is_allowed_no_more_it_makes_do() -> None:
    assert hardened(64) == [[64, 64], [0, 0], 0]


def test_an_export_is_hardened_before_it_reads_a_key() -> None:
    program = """
import sys
from agent import process
def stop():
    print("aiohttp" in sys.modules, "cryptography" in sys.modules)
    raise SystemExit(7)
process.harden = stop
from agent.cli import main
main(["-c", "/none", "issuer", "export", "site"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "False False\n")
