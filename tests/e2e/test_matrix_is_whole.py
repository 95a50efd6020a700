"""Which unmodified client is shown to take credentials through which dialect, in which circumstances, and by which test.

What stands here is the whole claim: each client, by each dialect that it can use, in each case, is shown by a test, or it is
said why not. `docs/clients.md` has the same table. The clients have nothing but what `wi-agent env` prints; each module says
at its top what it adds for its own ends.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.dialects import DIALECTS as KNOWN
from tests.e2e import (
    test_alibaba_clients,
    test_azure_clients,
    test_container_clients,
    test_ecs_clients,
    test_gce_clients,
    test_imds_clients,
)

ROOT = Path(__file__).parents[2]
CASES = {
    "first": "first",
    "rotations": "rotations",
    "reads": "reads",
    "late": "late",
    "absent": "agent late",
    "restart": "restart",
    "503": "503",
}
"""And how the documents call each, which say what is meant."""
CLIENTS = {
    "boto3": ("container", "imds"),
    "aws command line": ("container", "imds"),
    "@aws-sdk/credential-provider-node": ("container", "imds"),
    "@aws-sdk/credential-provider-http": ("container",),
    "google-auth": ("gce",),
    "google-auth-library": ("gce",),
    "gcp-metadata": ("gce",),
    "gcloud": ("gce",),
    "azure-identity": ("appservice", "azure-imds"),
    "@azure/identity": ("appservice", "azure-imds"),
    "alibabacloud-credentials": ("uri", "ecs"),
    "@alicloud/credentials": ("uri", "ecs"),
}
"""And the dialects that each can use."""


@dataclass(frozen=True)
class Cell:
    """A test, as pytest names it below `tests/e2e`, and what has to be said beside it; without a test, why there is none."""

    test: str = ""
    note: str = ""


AZURE = {
    "first": "test_azure_clients.py::test_three_reads_are_one_request_and_each_resource_is_asked_for_once",
    "rotations": "test_azure_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
    "reads": "test_azure_clients.py::test_three_reads_are_one_request_and_each_resource_is_asked_for_once",
    "late": "test_azure_clients.py::test_a_first_token_that_is_late_is_waited_for_within_the_first_request",
    "absent": "test_azure_clients.py::test_a_client_that_asks_first_is_served_by_an_agent_that_starts_a_second_later",
    "restart": "test_azure_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
    "503": "test_azure_clients.py::test_clients_sit_out_503_while_entra_is_away_and_an_agent_that_is_restarted",
}
ONCE = Cell(note="asks once, and takes it that there is nothing: start the agent first")
DIALECTS: dict[str, dict[str, str | Cell]] = {
    "container": {
        "first": "test_container_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed",
        "rotations": "test_container_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "reads": "test_container_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed",
        "late": "test_container_clients.py::test_a_first_session_that_is_late_is_waited_for_within_the_first_request",
        "absent": "test_container_clients.py::test_clients_that_ask_first_are_served_by_an_agent_that_starts_a_second_later",
        "restart": "test_container_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "503": "test_container_clients.py::test_clients_sit_out_503_while_sts_is_away",
    },
    "imds": {
        "first": "test_imds_clients.py::test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed[port]",
        "rotations": "test_imds_clients.py::test_clients_go_on_across_rotations_and_a_restart",
        "reads": "test_imds_clients.py::test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed[port]",
        "late": "test_imds_clients.py::test_a_first_session_that_is_late_is_waited_for_within_the_last_of_three_requests[boto3 and node]",
        "absent": ONCE,
        "restart": "test_imds_clients.py::test_clients_go_on_across_rotations_and_a_restart",
        "503": Cell(
            "test_imds_clients.py::test_clients_that_were_told_503_find_the_session_when_they_ask_again", "by asking again: it asks once"
        ),
    },
    "gce": {
        "first": "test_gce_clients.py::test_three_reads_take_one_token_and_a_restart_is_not_noticed",
        "rotations": "test_gce_clients.py::test_clients_go_on_across_rotations_and_a_restart_by_port_and_by_default",
        "reads": "test_gce_clients.py::test_three_reads_take_one_token_and_a_restart_is_not_noticed",
        "late": "test_gce_clients.py::test_a_first_token_that_is_late_is_waited_for_within_the_first_request",
        "absent": "test_gce_clients.py::test_clients_that_ask_first_are_served_by_an_agent_that_starts_a_moment_later",
        "restart": "test_gce_clients.py::test_clients_go_on_across_rotations_and_a_restart_by_port_and_by_default",
        "503": "test_gce_clients.py::test_clients_sit_out_503_while_google_is_away_or_find_the_token_when_they_ask_again",
    },
    "appservice": {**AZURE},
    "azure-imds": {**AZURE},
    "uri": {
        "first": "test_alibaba_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed",
        "rotations": "test_alibaba_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "reads": "test_alibaba_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed",
        "late": "test_alibaba_clients.py::test_a_first_session_that_is_late_is_waited_for_within_the_only_request",
        "absent": ONCE,
        "restart": "test_alibaba_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "503": Cell(
            "test_alibaba_clients.py::test_clients_that_were_told_503_find_the_session_when_they_ask_again", "by asking again: it asks once"
        ),
    },
    "ecs": {
        "first": "test_ecs_clients.py::test_a_first_session_that_is_late_is_waited_for_and_three_reads_are_the_two_requests_that_one_is",
        "rotations": "test_ecs_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "reads": "test_ecs_clients.py::test_a_first_session_that_is_late_is_waited_for_and_three_reads_are_the_two_requests_that_one_is",
        "late": "test_ecs_clients.py::test_a_first_session_that_is_late_is_waited_for_and_three_reads_are_the_two_requests_that_one_is",
        "absent": ONCE,
        "restart": "test_ecs_clients.py::test_clients_that_were_made_before_go_on_across_rotations_and_a_restart",
        "503": Cell(
            "test_ecs_clients.py::test_clients_that_were_told_503_find_the_session_when_they_ask_again", "by asking again: it asks once"
        ),
    },
}
"""What is shown with every client of a dialect, but for these."""
EACH = "each command is a new process"
KEEPS = "keeps nothing: each read is a request"
AWS_ROTATIONS = "test_aws_clients.py::test_long_lived_clients_go_on_across_rotations_and_a_restart_and_short_ones_work_after_each"
GCLOUD = "where it is installed, which is for the machine to have: it is in no package registry"
GCLOUDS = "test_gce_clients.py::test_gcloud_waits_for_a_first_token_that_is_late_and_prints_it_before_and_after_a_restart"
BUT: dict[tuple[str, str, str], str | Cell] = {
    ("boto3", "container", "rotations"): AWS_ROTATIONS,
    ("boto3", "container", "absent"): (
        "test_aws_endpoint.py::test_a_client_that_asks_first_is_served_by_an_agent_that_starts_a_second_later"
    ),
    ("boto3", "container", "restart"): AWS_ROTATIONS,
    ("boto3", "imds", "rotations"): Cell(
        "test_imds_clients.py::test_clients_go_on_across_rotations_and_a_restart",
        "by a new process after each: botocore gives what ends within minutes 12 to 20 minutes more, and asks for no other until then",
    ),
    ("boto3", "imds", "restart"): (
        "test_imds_clients.py::test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed[port]"
    ),
    ("aws command line", "container", "rotations"): Cell(AWS_ROTATIONS, EACH),
    ("aws command line", "container", "reads"): Cell(
        "test_container_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed", EACH
    ),
    ("aws command line", "container", "restart"): Cell(AWS_ROTATIONS, EACH),
    ("aws command line", "imds", "rotations"): Cell("test_imds_clients.py::test_clients_go_on_across_rotations_and_a_restart", EACH),
    ("aws command line", "imds", "reads"): Cell(
        "test_imds_clients.py::test_three_reads_take_the_three_requests_that_one_takes_and_a_restart_is_not_noticed[port]", EACH
    ),
    ("aws command line", "imds", "late"): (
        "test_imds_clients.py::test_a_first_session_that_is_late_is_waited_for_within_the_last_of_three_requests[command line]"
    ),
    ("aws command line", "imds", "restart"): Cell("test_imds_clients.py::test_clients_go_on_across_rotations_and_a_restart", EACH),
    ("@aws-sdk/credential-provider-http", "container", "reads"): Cell(
        "test_container_clients.py::test_three_reads_are_one_request_and_a_restart_is_not_noticed", KEEPS
    ),
    ("google-auth-library", "gce", "503"): Cell(str(DIALECTS["gce"]["503"]), "by asking again: it has 3 s for all its tries together"),
    ("gcp-metadata", "gce", "503"): Cell(str(DIALECTS["gce"]["503"]), "by asking again: it has 3 s for all its tries together"),
    ("gcp-metadata", "gce", "reads"): Cell(str(DIALECTS["gce"]["reads"]), KEEPS),
    **{("gcloud", "gce", case): Cell(GCLOUDS, GCLOUD) for case in ("first", "reads", "late", "restart")},
    ("gcloud", "gce", "rotations"): Cell(str(DIALECTS["gce"]["rotations"]), GCLOUD),
    ("gcloud", "gce", "absent"): Cell(note="finds no account, and believes so for ten minutes: start the agent first"),
    ("gcloud", "gce", "503"): Cell("test_gce_clients.py::test_gcloud_sits_out_503_while_google_is_away", GCLOUD),
    ("@alicloud/credentials", "ecs", "503"): Cell(
        "test_ecs_clients.py::test_clients_that_were_told_503_find_the_session_when_they_ask_again",
        "by a new client: one that was told 503 looks for a credentials URI ever after",
    ),
}
"""Where a client is shown by another test, or with a reservation, or not at all."""


def cell(client: str, dialect: str, case: str) -> Cell:
    """What is claimed of it."""
    found = BUT.get((client, dialect, case), DIALECTS[dialect][case])
    return found if isinstance(found, Cell) else Cell(found)


def every() -> list[tuple[str, str, str]]:
    """Client, dialect and case."""
    return [(client, dialect, case) for client, dialects in CLIENTS.items() for dialect in dialects for case in CASES]


def rendered() -> str:
    """The table as the documents have it."""
    notes: list[str] = []
    lines = [f"| client | dialect | {' | '.join(CASES.values())} |", "|---|---|" + "---|" * len(CASES)]
    for client, dialects in CLIENTS.items():
        for dialect in dialects:
            marks = []
            for case in CASES:
                claimed = cell(client, dialect, case)
                if claimed.note and claimed.note not in notes:
                    notes.append(claimed.note)
                number = f" ({notes.index(claimed.note) + 1})" if claimed.note else ""
                marks.append(("yes" if claimed.test else "no") + number)
            lines.append(f"| {client} | `{dialect}` | {' | '.join(marks)} |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, start=1))]) + "\n"


@cache
def collected() -> frozenset[str]:
    """Every test that `make test` and `make matrix` run, as pytest names it below `tests/e2e`; with parameters and without."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not torture and not nightly"]
    done = subprocess.run([*command, "tests/e2e"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.removeprefix("tests/e2e/") for line in done.stdout.splitlines() if "::" in line]
    return frozenset(names) | {name.partition("[")[0] for name in names}


def test_every_client_is_shown_by_a_test_in_every_case_or_it_is_said_why_not() -> None:
    claims = {where: cell(*where) for where in every()}
    assert [where for where, claimed in claims.items() if not claimed.test and not claimed.note] == []
    missing = {where: claimed.test for where, claimed in claims.items() if claimed.test and claimed.test not in collected()}
    assert missing == {}
    assert [where for where in BUT if where not in claims] == [], "of no client"


def test_every_dialect_that_there_is_is_shown_with_a_client() -> None:
    assert {dialect for dialects in CLIENTS.values() for dialect in dialects} == set(KNOWN) == set(DIALECTS)


MODULES = (
    test_alibaba_clients,
    test_azure_clients,
    test_container_clients,
    test_ecs_clients,
    test_gce_clients,
    test_imds_clients,
)
BESIDE = {"NODE_PATH", "AWS_ENDPOINT_URL_STS", "WI_AUTHORIZATION"}
"""Where Node's modules are; where STS is, for who says what it has taken by using it; what the chart gives both containers."""


def test_clients_are_given_no_variable_beside_those_that_env_prints_but_what_would_mislead_them() -> None:
    for module in MODULES:
        named = set(re.findall(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"', Path(str(module.__file__)).read_text()))
        misleading = {*module.TRAPS, "ALIBABA_CLOUD_ECS_METADATA_DISABLED"}  # which `env` clears; the last for ecs only
        assert named <= misleading | BESIDE, module


def test_the_documents_have_the_same_table() -> None:
    assert rendered() in (ROOT / "docs" / "clients.md").read_text(), f"docs/clients.md wants:\n{rendered()}"
