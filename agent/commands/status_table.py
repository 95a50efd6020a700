"""The table of `status`, for a person."""

from datetime import UTC, datetime
from typing import Any

from agent.errors import Reaction
from agent.sanitize import plain

COLOURS = {"fresh": "32", "stale": "33", "expired": "31", "missing": "31"}
MIN_SINK_CHARACTERS = 12
"""Of a sink's name, shown in any terminal."""
MAX_VARIANT_CHARACTERS = 80
"""Of a run-time variant, shown: it can name many scopes."""
HEADER = ("IDENTITY", "STATE", "AGE", "EXPIRES IN", "NEXT REFRESH", "SINKS", "SERVED")


def render(found: dict[str, Any], *, colour: bool = False, columns: int | None = None) -> str:
    """Return the table, then each failure and its remedy.

    `columns`: of the terminal. A wider table shows the ends of the sinks' names only, as their beginnings are mostly the same.
    """
    rows, widths = _table(found)
    longest = max((len(sink["name"]) for identity in found["identities"] for sink in identity["sinks"]), default=0)
    if columns and (over := sum(widths) + 2 * (len(widths) - 1) - columns) > 0:
        rows, widths = _table(found, max(MIN_SINK_CHARACTERS, longest - over))
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if colour and row[1] in COLOURS:
            cells[1] = f"\x1b[{COLOURS[row[1]]}m{cells[1]}\x1b[0m"
        lines.append("  ".join(cells).rstrip())
    for identity in found["identities"]:
        lines += map(plain, _remarks(identity))
    if not found["identities"]:
        lines.append("no identities are configured")
    if refused := found.get("refusedConfiguration"):
        lines += [
            "",
            "the agent refused the changed configuration file and keeps the one before it:",
            *(f"  {plain(line)}" for line in refused),
        ]
    for failure in found.get("failedTasks", ()):
        lines += ["", *map(plain, _failed_task(failure))]
    return "\n".join(lines)


def _failed_task(failure: dict[str, Any]) -> list[str]:
    times = "once" if failure["count"] == 1 else f"{failure['count']} times in a row"
    return [
        f"task {failure['task']}: {failure['result']}, {times}, last at {failure['at'][:19]}Z; the agent restarts it",
        f"  {failure['message']}",
        f"  → {failure['remedy']}",
    ]


def _table(found: dict[str, Any], longest: int | None = None) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the rows, and the width of each column."""
    now = _moment(found["now"])
    rows = [HEADER, *(tuple(map(plain, _row(identity, now, longest))) for identity in found["identities"])]
    return rows, [max(len(row[column]) for row in rows) for column in range(len(HEADER))]


def _row(identity: dict[str, Any], now: datetime, longest: int | None) -> tuple[str, ...]:
    spans = [span for span in (identity["token"], identity["credential"]) if span.get("expiresAt")]
    first = min(spans, key=lambda span: span["expiresAt"], default=None)
    due = identity["nextRefresh"]
    return (
        identity["name"],
        identity["state"],
        length(first["ageSeconds"]) if first else "-",
        ("expired" if first["expiresInSeconds"] <= 0 else length(first["expiresInSeconds"])) if first else "-",
        ("now" if _moment(due) <= now else f"in {length((_moment(due) - now).total_seconds())}") if due else "-",
        ", ".join(f"{_end(sink['name'], longest)} {'ok' if sink['state'] == 'fresh' else sink['state']}" for sink in identity["sinks"])
        or "-",
        ", ".join(identity["served"]) or "-",
    )


def _end(name: str, longest: int | None) -> str:
    return name if longest is None or len(name) <= longest else f"…{name[1 - longest :]}"


def _remarks(identity: dict[str, Any]) -> list[str]:
    lines = []
    if revoked := identity.get("revoked"):
        lines += ["", f"{identity['name']}: revoked by {revoked['by']} at {revoked['at'][:19]}Z", f"  → wi-agent renew {identity['name']}"]
    failures = [("refresh", None if revoked else identity["failure"]), *((sink["name"], sink["failure"]) for sink in identity["sinks"])]
    variants = identity.get("variantFailures", {})
    failures += [
        (
            f"refresh for {variant if len(variant) < MAX_VARIANT_CHARACTERS else variant[: MAX_VARIANT_CHARACTERS - 1] + '…'}",
            variants[variant],
        )
        for variant in variants
    ]
    for what, failure in failures:
        if failure:
            times = "once" if failure["count"] == 1 else f"{failure['count']} times in a row"
            lines += [
                "",
                f"{identity['name']}: {what} {failure['result']}, {times}, last at {failure['at'][:19]}Z",
                f"  {reason(identity['name'], failure)}",
            ]
            if remedy := what_to_do(identity["name"], failure):
                lines.append(f"  → {remedy}")
    for sink in identity["sinks"]:
        if lost := sink.get("lost"):
            times = "once" if lost["count"] == 1 else f"{lost['count']} times"
            lines += [
                "",
                f"{identity['name']}: {sink['name']} no longer held the delivered files, {times}, last found at {lost['at'][:19]}Z",
                "  → find the program that writes there besides the agent: see which containers mount that volume writable",
            ]
    if identity["note"]:
        lines += ["", f"{identity['name']}: {identity['note']}"]
    return lines


def reason(name: str, failure: dict[str, Any]) -> str:
    """Return the failure's message without the identity's name."""
    return str(failure["message"]).removeprefix(f"{name}: ")


def what_to_do(name: str, failure: dict[str, Any]) -> str:
    """Return what to type or change; empty if that is unknown."""
    if not failure["remedy"] and failure["result"] in {Reaction.UNAVAILABLE, Reaction.NOT_READY}:
        return f"the agent retries by itself; if the failure stays, type: wi-agent doctor {name}"
    return str(failure["remedy"])


def length(seconds: float) -> str:
    """Return a length of time in its two largest units: `41s`, `4m07s`, `1h12m`, `3d4h`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{secs:02}s" if minutes else f"{secs}s"


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
