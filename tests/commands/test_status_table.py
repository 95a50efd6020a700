"""What a person reads of `status`."""

from typing import Any

import pytest

from agent.commands.status_table import length, render

NOW = "2026-01-01T00:00:00.000000Z"


def identity(name: str, **more: Any) -> dict[str, Any]:
    token = {"expiresAt": "2026-01-01T00:30:00.000000Z", "ageSeconds": 1800.0, "expiresInSeconds": 1800.0}
    return {
        "name": name,
        "state": "fresh",
        "token": token,
        "credential": {},
        "nextRefresh": "2026-01-01T00:18:00.000000Z",
        "sinks": [{"name": "files:/a", "state": "fresh", "failure": None}],
        "served": [],
        "failure": None,
        "note": "",
        **more,
    }


def test_each_identity_has_a_row_and_failures_follow_with_remedies() -> None:
    failure = {"result": "rejected", "message": "late: no", "remedy": "do this", "at": "2026-01-01T00:00:00.5Z", "count": 3}
    late = identity(
        "late",
        state="missing",
        token={},
        nextRefresh=None,
        failure=failure,
        sinks=[{"name": "files:/b", "state": "missing", "failure": failure | {"count": 1, "remedy": ""}}],
        served=["container"],
        note="short",
    )
    due = identity("due", nextRefresh=NOW, sinks=[])
    assert render({"now": NOW, "identities": [identity("good"), due, late]}).splitlines() == [
        "IDENTITY  STATE    AGE     EXPIRES IN  NEXT REFRESH  SINKS             SERVED",
        "good      fresh    30m00s  30m00s      in 18m00s     files:/a ok       -",
        "due       fresh    30m00s  30m00s      now           -                 -",
        "late      missing  -       -           -             files:/b missing  container",
        "",
        "late: refresh rejected, 3 times in a row, last at 2026-01-01T00:00:00Z",
        "  no",
        "  → do this",
        "",
        "late: files:/b rejected, once, last at 2026-01-01T00:00:00Z",
        "  no",
        "",
        "late: short",
    ]


@pytest.mark.parametrize(
    ("result", "last"),
    [
        ("unavailable", "  → the agent retries by itself; if the failure stays, type: wi-agent doctor one"),
        ("rejected", "  AWS answered 500"),
    ],
)
def test_a_transient_failure_points_to_the_doctor(result: str, last: str) -> None:
    failure = {"result": result, "message": "one: AWS answered 500", "remedy": "", "at": "2026-01-01T00:00:00.5Z", "count": 1}
    assert render({"now": NOW, "identities": [identity("one", failure=failure)]}).splitlines()[-1] == last


def test_refused_variant_is_shown_for_a_fresh_identity() -> None:
    failure = {"result": "rejected", "message": "one: no such thing", "remedy": "do this", "at": "2026-01-01T00:00:00.5Z", "count": 2}
    variants = {"api://nope": failure, "x" * 200: failure | {"remedy": ""}}
    assert render({"now": NOW, "identities": [identity("one", variantFailures=variants)]}).splitlines()[2:] == [
        "",
        "one: refresh for api://nope rejected, 2 times in a row, last at 2026-01-01T00:00:00Z",
        "  no such thing",
        "  → do this",
        "",
        f"one: refresh for {'x' * 79}… rejected, 2 times in a row, last at 2026-01-01T00:00:00Z",
        "  no such thing",
    ]


@pytest.mark.parametrize(("count", "times"), [(1, "once"), (7, "7 times")])
def test_files_that_another_program_removed_are_reported_once_restored(count: int, times: str) -> None:
    sink = {"name": "files:/a", "state": "fresh", "failure": None, "lost": {"at": "2026-01-01T00:00:00.500000Z", "count": count}}
    assert render({"now": NOW, "identities": [identity("moved", sinks=[sink])]}).splitlines()[2:] == [
        "",
        f"moved: files:/a no longer held the delivered files, {times}, last found at 2026-01-01T00:00:00Z",
        "  → find the program that writes there besides the agent: see which containers mount that volume writable",
    ]


def test_foreign_text_does_not_reach_the_terminal_as_a_command() -> None:
    wild = "\x1b]0;owned\x07\r\n\x9b2J\u202eevil"
    failure = {"result": "rejected", "message": wild, "remedy": wild, "at": "2026-01-01T00:00:00.5Z", "count": 1}
    sink = {"name": wild, "state": wild, "failure": failure}
    one = identity(f"one{wild}", state=f"fresh{wild}", failure=failure, note=wild, served=[wild], sinks=[sink])
    shown = render({"now": NOW, "identities": [one]}).splitlines()
    assert all(line.isprintable() for line in shown)
    assert "  → ]0;owned2Jevil" in shown


def test_the_span_that_expires_first_is_shown() -> None:
    credential = {"expiresAt": "2025-12-31T23:00:00.000000Z", "ageSeconds": 7200.0, "expiresInSeconds": -3600.0}
    row = render({"now": NOW, "identities": [identity("one", credential=credential)]}).splitlines()[1]
    assert row.split()[2:4] == ["2h00m", "expired"]


def test_sink_names_are_cut_to_a_terminal_of_eighty_columns() -> None:
    sinks = [{"name": "files:./run/identities/blob-reader", "state": "fresh", "failure": None}]
    found = {"now": NOW, "identities": [identity("blob-reader", sinks=sinks), identity("s3", sinks=[sinks[0] | {"name": "files:/s3"}])]}
    wide, narrow = render(found).splitlines(), render(found, columns=80).splitlines()
    assert max(map(len, wide)) > 80
    assert max(map(len, narrow)) <= 80
    assert "…es/blob-reader ok" in narrow[1]
    assert "files:/s3 ok" in narrow[2]
    assert render(found, columns=200).splitlines() == wide
    assert "…blob-reader ok" in render(found, columns=20).splitlines()[1]


def test_colour_is_put_around_the_state_only_and_widths_stay() -> None:
    found = {"now": NOW, "identities": [identity("one"), identity("two", state="stale")]}
    plain, coloured = render(found).splitlines(), render(found, colour=True).splitlines()
    assert coloured[1] == plain[1].replace("fresh", "\x1b[32mfresh\x1b[0m")
    assert "\x1b[33mstale\x1b[0m" in coloured[2] or "\x1b[33mstale \x1b[0m" in coloured[2]


def test_a_refused_configuration_is_said_with_every_reason() -> None:
    reasons = ["c.yaml:3: refresh.at: must be below 1", "c.yaml:9: \x1b[2Jidentities"]
    shown = render({"now": NOW, "identities": [identity("a")], "refusedConfiguration": reasons}).splitlines()
    assert shown[-3:-1] == ["the agent refused the changed configuration file and keeps the one before it:", f"  {reasons[0]}"]
    assert "\x1b" not in shown[-1]


def test_a_failed_task_is_shown_with_its_remedy() -> None:
    failure = {
        "task": "reload",
        "result": "defect",
        "message": "ValueError\x1b in task reload",
        "remedy": "report it",
        "at": NOW,
        "count": 3,
    }
    shown = render({"now": NOW, "identities": [identity("a")], "failedTasks": [failure]}).splitlines()
    assert shown[-3].startswith("task reload: defect, 3 times in a row, last at ")
    assert shown[-1] == "  → report it"
    assert "\x1b" not in shown[-2]


def test_an_empty_configuration_is_shown() -> None:
    assert render({"now": NOW, "identities": []}).endswith("no identities are configured")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0s"), (59.9, "59s"), (60, "1m00s"), (247, "4m07s"), (4320, "1h12m"), (273600, "3d4h")]
)
def test_lengths_show_their_two_largest_units(seconds: float, shown: str) -> None:
    assert length(seconds) == shown
