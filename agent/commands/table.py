"""`status` as a person reads it."""

from datetime import UTC, datetime
from typing import Any

from agent.plain import plain

COLOURS = {"fresh": "32", "stale": "33", "expired": "31", "missing": "31"}
HEADER = ("IDENTITY", "STATE", "AGE", "EXPIRES IN", "NEXT REFRESH", "SINKS", "SERVED")


def render(found: dict[str, Any], *, colour: bool = False) -> str:
    """The whole picture: a table, then what is wrong and what to do about it."""
    now = _moment(found["now"])
    rows = [HEADER, *(tuple(map(plain, _row(identity, now))) for identity in found["identities"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
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
            "the configuration file was changed and refused; the one before it runs on:",
            *(f"  {plain(line)}" for line in refused),
        ]
    return "\n".join(lines)


def _row(identity: dict[str, Any], now: datetime) -> tuple[str, ...]:
    spans = [span for span in (identity["token"], identity["credential"]) if span.get("expiresAt")]
    first = min(spans, key=lambda span: span["expiresAt"], default=None)
    due = identity["nextRefresh"]
    return (
        identity["name"],
        identity["state"],
        length(first["ageSeconds"]) if first else "-",
        ("expired" if first["expiresInSeconds"] <= 0 else length(first["expiresInSeconds"])) if first else "-",
        ("now" if _moment(due) <= now else f"in {length((_moment(due) - now).total_seconds())}") if due else "-",
        ", ".join(f"{sink['name']} {'ok' if sink['state'] == 'fresh' else sink['state']}" for sink in identity["sinks"]) or "-",
        ", ".join(identity["served"]) or "-",
    )


def _remarks(identity: dict[str, Any]) -> list[str]:
    lines = []
    failures = [("refresh", identity["failure"]), *((sink["name"], sink["failure"]) for sink in identity["sinks"])]
    for what, failure in failures:
        if failure:
            times = "once" if failure["count"] == 1 else f"{failure['count']} times in a row"
            lines += [
                "",
                f"{identity['name']}: {what} {failure['result']}, {times}, last at {failure['at'][:19]}Z",
                f"  {failure['message']}",
            ]
            if failure["remedy"]:
                lines.append(f"  → {failure['remedy']}")
    if identity["note"]:
        lines += ["", f"{identity['name']}: {identity['note']}"]
    return lines


def length(seconds: float) -> str:
    """A length of time in its two largest units: `41s`, `4m07s`, `1h12m`, `3d4h`."""
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
