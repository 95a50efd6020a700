"""Which unmodified client is shown to take credentials through which dialect, in which circumstances, and by which test.

What stands here is the whole claim: each client, by each dialect that it can use, in each case, is shown by a test, or it is
said why not. `docs/clients.md` has the same table. The clients have nothing but what `wi-agent env` prints; each module says
at its top what it adds for its own ends.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import getmembers, isfunction
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


Cell = tuple[str, str, str]
"""Client, dialect and case."""
ONCE = "asks once, and takes it that there is nothing: start the agent first"
EACH = "each command is a new process"
KEEPS = "keeps nothing: each read is a request"
AGAIN = "by asking again: it asks once"
GCLOUD = "where it is installed, which the machine must have: no package registry has it"
NOTES: dict[Cell, str] = {
    **{(client, "imds", "absent"): ONCE for client in ("boto3", "aws command line", "@aws-sdk/credential-provider-node")},
    **{(client, dialect, "absent"): ONCE for client in ("alibabacloud-credentials", "@alicloud/credentials") for dialect in ("uri", "ecs")},
    **{(client, "imds", "503"): AGAIN for client in ("boto3", "aws command line", "@aws-sdk/credential-provider-node")},
    **{(client, dialect, "503"): AGAIN for client in ("alibabacloud-credentials", "@alicloud/credentials") for dialect in ("uri", "ecs")},
    ("boto3", "imds", "rotations"): (
        "by a new process after each: botocore gives what ends within minutes 12 to 20 minutes more, and asks for no other until then"
    ),
    **{("aws command line", "container", case): EACH for case in ("rotations", "reads", "restart")},
    **{("aws command line", "imds", case): EACH for case in ("rotations", "reads", "restart")},
    ("@aws-sdk/credential-provider-http", "container", "reads"): KEEPS,
    ("google-auth-library", "gce", "503"): "by asking again: it has 3 s for all its tries together",
    ("gcp-metadata", "gce", "503"): "by asking again: it has 3 s for all its tries together",
    ("gcp-metadata", "gce", "reads"): KEEPS,
    **{("gcloud", "gce", case): GCLOUD for case in ("first", "rotations", "reads", "late", "restart", "503")},
    ("gcloud", "gce", "absent"): "finds no account, and believes so for ten minutes: start the agent first",
    ("@alicloud/credentials", "ecs", "503"): "by a new client: one that received 503 looks for a credentials URI ever after",
}
"""What has to be said beside a test, or why there is none."""


def every() -> list[Cell]:
    """The cells of the table."""
    return [(client, dialect, case) for client, dialects in CLIENTS.items() for dialect in dialects for case in CASES]


def marks() -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Each mark `shows` of a test that `make matrix` or `make test` runs: the test, its dialect, its cases and its clients."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = import_module(f"tests.e2e.{path.stem}")
        for name, test in getmembers(module, isfunction):
            own = getattr(test, "pytestmark", []) if name.startswith("test_") else []
            if not {mark.name for mark in own} & {"torture", "nightly"}:
                shows = [mark for mark in own if mark.name == "shows"]
                found += [(f"{path.name}::{name}", each.args[0], each.args[1:], each.kwargs.get("clients", ())) for each in shows]
    return found


@cache
def shown() -> Mapping[Cell, frozenset[str]]:
    """The tests that show each cell. A mark without clients means all that can use the dialect."""
    found = dict.fromkeys(every(), frozenset[str]())
    for test, dialect, cases, clients in marks():
        for client in clients or [name for name, dialects in CLIENTS.items() if dialect in dialects]:
            for case in cases:
                assert (client, dialect, case) in found, f"{test} shows {(client, dialect, case)}, which is not in the table"
                found[client, dialect, case] |= {test}
    return found


def rendered() -> str:
    """The table as the documents have it."""
    notes: list[str] = []
    lines = [f"| client | dialect | {' | '.join(CASES.values())} |", "|---|---|" + "---|" * len(CASES)]
    for client, dialects in CLIENTS.items():
        for dialect in dialects:
            cells = []
            for case in CASES:
                note = NOTES.get((client, dialect, case), "")
                if note and note not in notes:
                    notes.append(note)
                number = f" ({notes.index(note) + 1})" if note else ""
                cells.append(("yes" if shown()[client, dialect, case] else "no") + number)
            lines.append(f"| {client} | `{dialect}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, start=1))]) + "\n"


def test_a_test_shows_each_client_in_each_case_or_a_note_says_why_not() -> None:
    assert [cell for cell, tests in shown().items() if not tests and cell not in NOTES] == []
    assert [cell for cell in NOTES if cell not in shown()] == [], "of no client"


def test_a_client_uses_every_dialect() -> None:
    assert {dialect for dialects in CLIENTS.values() for dialect in dialects} == set(KNOWN)


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
