"""The endpoint's link for dialects that ask for nothing: as their SDKs walk it."""

import pytest

from tests.doctor.scene import CONFIG, NAME, Scene, free_port


@pytest.mark.parametrize("serve", [{}, {"default": True}, {"port": 0}])
async def test_instance_metadata_is_asked_as_sdks_ask_it(stage: Scene, serve: dict[str, int | bool]) -> None:
    own = {"port": free_port()} if "port" in serve else serve
    async with stage.agent(stage.configuration(serve={"dialects": ["imds", "container"], **own})):
        code, text = await stage.doctor()
    assert code == 0, text
    port, path = "<nobody>" if "port" in own else "<endpoint>", "" if own else f"/aws/{NAME}/imds"
    assert f"http://{port}{path}/latest/meta-data/iam/security-credentials/s3-reader answers 200: a session until" in text
    assert f"/aws/{NAME}/credentials answers 200: a session until" in text


async def test_an_agent_with_another_dialect_is_reported(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage.agent(stage.configuration(serve={"dialects": ["container"]})):
        CONFIG.write_text(CONFIG.read_text().replace("- container", "- imds"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/")
        code, text = await stage.doctor()
    assert code == 3
    assert "/imds/latest/api/token answers 404: no such identity is served here" in text
    assert "send it SIGHUP" in text
