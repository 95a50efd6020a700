"""The agent's state as plain data, which `wi-agent status` shows. Contains no secret, because the store shows none."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agent import __version__
from agent.clock import Clock
from agent.model import Key
from agent.record import Failure, Observation, Profile, Record, Revocation, SinkStatus, credential_span, sink_state, token_span
from agent.schedule import Span, State
from agent.store import Store
from agent.tasks import TaskFailure


def describe(
    store: Store,
    clock: Clock,
    refused: Sequence[str] = (),
    failures: Sequence[TaskFailure] = (),
    revoked: Mapping[str, Revocation] | None = None,
    *,
    restart_needed: bool = False,
) -> dict[str, Any]:
    """All identities; `refused` is why the configuration file as it is now was, a line each; `failures` those of the agent's tasks."""
    now = clock.now()
    return {
        "version": __version__,
        "now": _time(now),
        "ready": store.ready(now),
        "refusedConfiguration": list(refused),
        "restartNeeded": restart_needed,
        "failedTasks": [_task(failure) for failure in failures],
        "identities": [
            _identity(store, profile, record, now) | {"revoked": _revocation((revoked or {}).get(profile.name))}
            for profile in sorted(store.profiles(), key=lambda profile: profile.name)
            if (record := store.record(Key(profile.name)))
        ],
    }


def _revocation(revocation: Revocation | None) -> dict[str, Any] | None:
    return {"at": _time(revocation.at), "by": revocation.by} if revocation else None


def _task(failure: TaskFailure) -> dict[str, Any]:
    return {
        "task": failure.task,
        "result": failure.result,
        "message": failure.message,
        "remedy": failure.remedy,
        "at": _time(failure.at),
        "count": failure.count,
    }


def _identity(store: Store, profile: Profile, record: Record, now: datetime) -> dict[str, Any]:
    grant = record.grant
    return {
        "name": profile.name,
        "state": store.state(profile.name, now).value,
        "delivered": store.delivered(profile.name, now),
        "required": profile.required,
        "source": profile.source,
        "provider": profile.provider,
        "token": _span(token_span(grant) if grant else None, now) | ({"id": grant.token.id} if grant and grant.token else {}),
        "credential": _span(credential_span(grant) if grant else None, now),
        "generation": grant.generation if grant else 0,
        "nextRefresh": _time(record.due),
        "failure": _failure(record.failure),
        "note": "; ".join(filter(None, [record.account.note() if record.account else "", record.note])),
        "serviceAccount": _account(record.account, now),
        "served": list(profile.dialects),
        "sinks": [_sink(sink, record, profile, now) for sink in profile.sinks],
        "variants": [other.key.variant for other in store.records(profile.name) if other.key.variant],
        "variantFailures": {
            other.key.variant: _failure(other.failure) for other in store.records(profile.name) if other.key.variant and other.failure
        },
    }


def _account(account: Observation | None, now: datetime) -> dict[str, Any] | None:
    """Whether a deletion would be seen at once, and when the ServiceAccount was last confirmed; None for other sources."""
    if account is None:
        return None
    return {"watched": account.watched, "lastSeenAt": _time(account.last_seen(now)), "unseen": account.note()}


def _sink(sink: str, record: Record, profile: Profile, now: datetime) -> dict[str, Any]:
    sink_status: SinkStatus | None = record.sink_statuses.get(sink)
    state = sink_state(record, sink, profile, now)
    found = sink_status.delivery if sink_status else None
    return {
        "name": sink,
        "state": (state if sink_status else State.MISSING).value,
        "checkedAt": _time(sink_status.checked_at if sink_status else None),
        "tokenExpiresAt": _time(found.token_expires_at if found else None),
        "credentialExpiresAt": _time(found.credential_expires_at if found else None),
        "failure": _failure(sink_status.failure if sink_status else None),
        "lost": {"at": _time(sink_status.lost_at), "count": sink_status.losses} if sink_status and sink_status.losses else None,
    }


def _span(span: Span | None, now: datetime) -> dict[str, Any]:
    if span is None:
        return {}
    return {
        "issuedAt": _time(span.issued_at),
        "expiresAt": _time(span.expires_at),
        "ageSeconds": round((now - span.issued_at).total_seconds(), 1),
        "expiresInSeconds": round(span.remaining(now), 1),
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "result": failure.reaction,
        "message": failure.message,
        "remedy": failure.remedy,
        "at": _time(failure.at),
        "count": failure.count,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None
