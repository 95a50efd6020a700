"""What the daemon has not loaded when it begins: memory and time are for who uses the thing."""

import subprocess
import sys

LATER = (
    "aiobotocore",
    "azure",
    "botocore",
    "cryptography",
    "google.auth",
    "jsonschema",
    "jwt",
    "kubernetes_asyncio",
    "prometheus_client",
    "requests",
)
PROGRAM = """
import sys
import agent.app, agent.commands.daemon, agent.metrics, agent.serving.admin, agent.serving.control, agent.serving.listener
print(*(name for name in sys.argv[1].split(",") if name in sys.modules), sep=",")
"""


def test_what_only_some_need_is_not_loaded_before_the_first_token():
    run = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(LATER)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
