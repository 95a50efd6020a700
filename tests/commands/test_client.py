"""Client commands start in a blink: they load neither a server nor any SDK."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "aiohttp",
    "aiobotocore",
    "botocore",
    "cryptography",
    "google",
    "jsonschema",
    "jwt",
    "kubernetes_asyncio",
    "msgspec",
    "prometheus_client",
)
PROGRAM = """
import sys
from agent.cli import main
code = main(sys.argv[2:])
loaded = [name for name in sys.argv[1].split(",") if name in sys.modules]
print(code, *loaded)
"""


@pytest.mark.parametrize("arguments", [("status",), ("renew", "one"), ("wait", "--timeout", "0")])
def test_client_commands_load_neither_a_server_nor_any_sdk(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(HEAVY), *arguments, "--socket", str(tmp_path / "none.sock")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "4\n"


def test_the_list_of_what_is_heavy_would_notice(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(HEAVY), "schema"], capture_output=True, text=True, check=False)
    assert "msgspec" in done.stdout.splitlines()[-1]
