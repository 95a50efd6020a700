import pytest

from tests.config.writing import marked, told, verdict


def written(source, provider="{type: generic, audiences: [demo]}"):
    return (
        f"identities:\n  - name: one\n    sinks: [{{type: files, directory: run/one}}]\n    source:\n{source}\n    provider: {provider}\n"
    )


ACCOUNT = "      type: kubernetes\n      serviceAccount: {namespace: demo, name: app}\n"


@pytest.mark.parametrize(
    "more",
    [
        "",
        "      lifetime: 10m\n",
        "      boundTo: pod\n",
        "      boundTo: {kind: Secret, name: app}\n",
        "      boundTo: {kind: Pod, name: app, uid: 00000000-0000-0000-0000-000000000000}\n",
        "      kubeconfig: ./kubeconfig\n",
    ],
)
def test_each_setting_is_taken(tmp_path, more):
    assert not verdict(tmp_path, written(ACCOUNT + more)).faults


def test_no_audience_means_the_api_servers_own(tmp_path):
    assert not verdict(tmp_path, written(ACCOUNT, "{type: generic, audiences: []}")).faults


def test_a_foreign_token_needs_an_audience(tmp_path):
    found = verdict(tmp_path, written("      type: file\n      path: /x\n", "{type: generic, audiences: []}")).faults
    assert "name at least one audience" in told(found)


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("      lifetime: 9m # HERE", "identities[0].source.lifetime", "an API server does not grant 9m: write 10m to"),
        ("      lifetime: 99999999d # HERE", "identities[0].source.lifetime", "write 10m to 4294967296 seconds"),
        ("      boundTo: pods # HERE", "identities[0].source.boundTo", "pod"),
        ("      boundTo: {kind: Node, name: x} # HERE", "identities[0].source.boundTo", "Pod"),
        ("      audience: x # HERE", "identities[0].source.audience", "unknown key"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_line(tmp_path, line, where, said):
    text = written(f"{ACCOUNT}{line}")
    found = verdict(tmp_path, text).faults
    assert len(found) == 1, told(found)
    assert found[0].line == marked(text)
    assert found[0].path.startswith(where)
    assert said in told(found)


@pytest.mark.parametrize("account", ["{name: app}", "{namespace: demo}", "{namespace: de.mo, name: app}", "{namespace: ../x, name: app}"])
def test_a_service_account_needs_a_valid_namespace_and_name(tmp_path, account):
    found = verdict(tmp_path, written(f"      type: kubernetes\n      serviceAccount: {account} # HERE")).faults
    assert len(found) == 1, told(found)
    assert found[0].path.startswith("identities[0].source.serviceAccount")
