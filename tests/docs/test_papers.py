"""What is made from the code equals what lies in the documents, and every link leads somewhere."""

import importlib.util
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.request import urlopen

import pytest
import yaml

from tests.docs.conftest import ROOT, names

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
WRITTEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *ROOT.glob("charts/*/*.md"),
]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_the_configuration_is_what_the_schema_says():
    assert (ROOT / "docs" / "configuration.md").read_text() == script("configuration_reference").rendered(), "run `make docs`"


def test_every_key_of_the_configuration_has_a_meaning_and_no_meaning_is_left_over():
    assert script("configuration_reference").undescribed() == [], "see scripts/configuration_meanings.yaml"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse sets its columns otherwise in other versions of Python")
def test_the_readme_shows_the_help_as_it_is():
    assert (ROOT / "README.md").read_text() == script("command_line").rendered(), "run `make docs`"


@cache
def anchors(paper: Path) -> set[str]:
    """The headings of a page, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", paper.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("paper", WRITTEN, ids=names)
def test_every_link_inside_the_project_leads_somewhere(paper):
    for link in LINK.findall(paper.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (paper.parent / path).resolve() if path else paper
        assert target.exists(), f"{names(paper)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{names(paper)} links to {link}"


def test_every_page_of_the_documents_can_be_reached_from_the_readme():
    linked = {link.partition("#")[0] for link in LINK.findall((ROOT / "README.md").read_text())}
    assert {names(page) for page in (ROOT / "docs").glob("*.md")} <= linked


def test_every_module_that_the_page_on_architecture_names_is_there():
    table = re.search(r"^\| part .*?\n\n", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    named = re.findall(r"`([a-z_/]+)`", table)
    assert len(named) > 20
    assert [name for name in named if not ((ROOT / "agent" / name).is_dir() or (ROOT / "agent" / f"{name}.py").is_file())] == []


def test_every_alert_names_a_section_of_the_page_on_operations():
    rules = yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())["groups"][0]["rules"]
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors(ROOT / "docs" / page), rule["alert"]


def test_every_result_of_a_refresh_has_its_section_on_call():
    assert {"not_ready", "unavailable", "rejected", "defect"} <= anchors(ROOT / "docs" / "operations.md")


def test_the_table_of_metrics_is_what_an_agent_exposes(place):
    with urlopen(f"http://127.0.0.1:{place.ports['9480']}/metrics", timeout=10) as response:
        scraped = response.read().decode()
    exposed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", scraped, re.MULTILINE))
    rows = re.findall(r"^\| `(wi_agent_\w+)` \| (\w+) \| ([^|]*)\|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert {name: kind for name, kind, _ in rows} == exposed
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^(\w+)\{(.*)\} ", scraped, re.MULTILINE):
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        labels[family] = set(re.findall(r'(\w+)="', inside)) - {"le"} | labels.get(family, set())
    said = {name: set(re.findall(r"\w+", text)) for name, _, text in rows}
    assert {name: said[name] for name in labels} == labels


def test_every_metric_in_an_alert_is_one_that_an_agent_exposes():
    known = set(re.findall(r"`(wi_agent_\w+)`", (ROOT / "docs" / "operations.md").read_text()))
    used = set(re.findall(r"\bwi_agent_\w+", (ROOT / "docs" / "alerts.yaml").read_text()))
    assert used <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_the_alerts_fire_when_they_should_and_only_then(tmp_path):
    shutil.copy(ROOT / "docs" / "alerts.yaml", tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_story.yaml"), tmp_path)
    run = subprocess.run(["promtool", "test", "rules", "alerts_story.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_alert_is_seen_to_fire_and_seen_to_be_silent():
    story = yaml.safe_load(Path(__file__).with_name("alerts_story.yaml").read_text())["tests"]
    alerts = {rule["alert"] for rule in yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())["groups"][0]["rules"]}
    seen = [(one["alertname"], "exp_alerts" in one, number) for number, part in enumerate(story) for one in part["alert_rule_test"]]
    assert {name for name, fires, _ in seen if fires} == alerts
    assert {name for name, fires, number in seen if not fires and number == 0} == alerts, "in the good hour"
    assert {name for name, fires, number in seen if not fires and number} == alerts, "while something else is wrong, or not yet for long"


def test_every_event_of_the_log_is_explained_and_no_other():
    said = re.compile(
        r"""\.(?:info|warning|error|critical)\(\s*"([a-z]+\.[a-z_]+)"|getattr\(\w+(?:\.\w+)?, \w+\)\(\s*"([a-z]+\.[a-z_]+)\""""
    )
    written = {first or second for path in (ROOT / "agent").rglob("*.py") for first, second in said.findall(path.read_text())}
    table = (ROOT / "docs" / "operations.md").read_text().partition("## Logs")[2].partition("## ")[0]
    explained = set(re.findall(r"`([a-z]+\.[a-z_]+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))))
    assert len(written) > 30
    assert explained == written
