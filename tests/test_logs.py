"""Nothing that looks like a secret gets into a log line, whoever wrote it and however."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from agent.logs import redact
from agent.model import Secret

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJDQU5BUlkifQ.c2lnbmF0dXJl"
PROGRAM = f"""
import asyncio, gc, logging, sys, threading, warnings
import structlog
from agent.logs import set_up
set_up("debug", sys.argv[1])
CANARY = "CANARY"
log = structlog.get_logger()
log.info("said", token="{JWT}", url="https://user:CANARY@host/x", nested={{"a": ["{JWT}"]}}, bytes=b"CANARY")
log.info("thrown", error=ValueError("{JWT}"))
logging.getLogger("library").warning("sent %s to https://CANARY@host", "{JWT}")
try:
    raise ValueError(CANARY)
except ValueError:
    logging.getLogger("library").exception("failed")
thread = threading.Thread(target=lambda: int(CANARY))
thread.start()
thread.join()
async def main():
    async def fails():
        raise ValueError(CANARY)
    task = asyncio.ensure_future(fails())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    gc.collect()
    asyncio.get_running_loop().call_soon(int, CANARY)
    await asyncio.sleep(0)
asyncio.run(main())
class Bad:
    def __del__(self):
        raise ValueError(CANARY)
Bad()
raise ValueError(CANARY)
"""


@pytest.fixture(params=["json", "console"])
def said(request: Any) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, request.param], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return request.param, done.stderr


def test_no_canary_gets_through_whoever_logs_it(said: tuple[str, str]) -> None:
    form, text = said
    assert "CANARY" not in text
    assert JWT.split(".")[1] not in text
    for event in ("said", "thrown", "failed", "exception was never retrieved", "Exception in callback int", "exception.uncaught"):
        assert event in text, "but that it happened is said"
    if form == "json":
        events = [json.loads(line) for line in text.splitlines()]
        assert all({"event", "level", "timestamp"} <= set(event) for event in events)
        assert [event["error"] for event in events if event["event"] == "exception.uncaught"] == ["ValueError"] * 3
        assert {event["event"]: event["error"] for event in events if event.get("logger") == "library" and "error" in event} == {
            "failed": "ValueError"
        }
        assert {event["error"] for event in events if event.get("logger") == "asyncio"} == {"ValueError"}, "a library's say so, too"
        assert any(re.search(r"<string>:\d+ <module>", str(event.get("frames"))) for event in events if event["event"] == "failed")
        assert any(re.search(r"<string>:\d+ __del__", str(event.get("frames"))) for event in events), "where it happened, too"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Secret("x"), "[redacted]"),
        (f"Bearer {JWT}", "Bearer [redacted]"),
        ("https://token@host", "https://[redacted]@host"),
        ("https://user:p@ss@host/a@b", "https://[redacted]@host/a@b"),
        ("https://host/a@b", "https://host/a@b"),
        ({JWT: 1}, {"[redacted]": 1}),
        (3, 3),
        (None, None),
        (True, True),
    ],
)
def test_what_looks_like_a_secret_is_left_out_and_the_rest_stays(value: Any, shown: Any) -> None:
    assert redact(None, "info", {"event": "x", "value": value})["value"] == shown


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_logged_text_steers_no_terminal(form: str) -> None:
    program = "import sys, structlog; from agent.logs import set_up; set_up('info', sys.argv[1])\n"
    program += "structlog.get_logger().warning('refresh.failed', error='sub\\x1b[2J\\u202ex')\n"
    done = subprocess.run([sys.executable, "-c", program, form], capture_output=True, text=True, check=True)
    assert done.stderr.endswith("\n")
    assert done.stderr[:-1].isprintable()
    assert "sub" in done.stderr
