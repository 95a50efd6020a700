"""A real Prometheus scrapes the agent; what it sees, and what a probe is told, follows a fault and its end."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.e2e.daemon import Daemon, configuration, environment, fetch, identity, until


@pytest.fixture
def prometheus(tmp_path: Path, daemon: Daemon) -> Iterator[str]:
    """One that scrapes the agent's admin listener four times a second; its own URL."""
    if not shutil.which("prometheus"):
        pytest.skip("needs Debian's package prometheus")
    daemon.start(configuration(identity("one"), identity("two")))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    job = {"job_name": "agent", "static_configs": [{"targets": [daemon.address("admin")]}]}
    (tmp_path / "prometheus.yaml").write_text(
        yaml.safe_dump({"global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"}, "scrape_configs": [job]})
    )
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], env=environment(tmp_path), cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: _ready(f"http://{address}/-/ready"), within=30)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(20)


def _ready(url: str) -> bool:
    try:
        return fetch(url)[0] == 200
    except OSError:
        return False


def query(prometheus: str, expression: str) -> float | None:
    """Its present value, if it has one."""
    found = json.loads(fetch(f"{prometheus}/api/v1/query?query={quote(expression)}")[1])["data"]["result"]
    return float(found[0]["value"][1]) if found else None


def test_prometheus_and_probes_follow_a_fault_and_its_end(daemon: Daemon, prometheus: str) -> None:
    def fresh() -> float | None:
        return query(prometheus, 'wi_agent_tokens{state="fresh"}')

    until(lambda: fresh() == 2, within=20)
    assert query(prometheus, 'up{job="agent"}') == 1
    assert query(prometheus, 'wi_agent_token_expiry_timestamp_seconds{identity="one",kind="token"} - time()') > 3500  # type: ignore[operator]
    assert query(prometheus, 'sum(wi_agent_refresh_total{result="success"})') == 2
    assert query(prometheus, 'wi_agent_refresh_duration_seconds_count{provider="generic"}') == 2
    assert query(prometheus, "count(wi_agent_issuer_key_state_timestamp_seconds)") == 1
    assert daemon.admin("/readyz")[0] == 200

    place = daemon.folder / "identities/two"
    place.rename(daemon.folder / "aside")
    place.write_text("in the way")
    assert daemon.cli("renew", "two").returncode == 0, "the refresh itself is well"
    until(lambda: daemon.admin("/readyz")[0] == 503)
    assert daemon.admin("/readyz/one")[0] == 200
    assert "two: missing" in daemon.admin("/readyz/two")[1]
    until(lambda: query(prometheus, 'wi_agent_tokens{state="missing"}') == 1)
    assert fresh() == 1
    failed = query(prometheus, 'sum(wi_agent_writes_total{sink="files:./identities/two",result!="success"})')
    assert failed, "counted"
    assert daemon.admin("/healthz")[0] == 200

    place.unlink()
    until(lambda: fresh() == 2, within=25)
    assert daemon.admin("/readyz") == (200, "ok\n")
    assert daemon.token("two")["jti"] == daemon.status()["two"]["token"]["id"]


def test_promtool_finds_nothing_to_object_to(daemon: Daemon) -> None:
    if not shutil.which("promtool"):
        pytest.skip("needs promtool, of Debian's package prometheus")
    late = identity("late", source={"type": "file", "path": "./late"}, required=False)
    daemon.start(configuration(identity("one"), late))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=daemon.admin("/metrics")[1], capture_output=True, text=True, check=False, timeout=20
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
