"""Whether an identity is still the one that it was started as, by what its tokens and the watch of its ServiceAccount say."""

from datetime import datetime

from agent.errors import Ended, Reaction, Rejected
from agent.model import IdentityToken
from agent.record import UNSEEN, Observation, Profile
from agent.sanitize import repeatable

UNCONFIRMED_RENEWAL_SECONDS = 3600
"""For which an identity is renewed whose principal its ServiceAccount names, once the agent may no longer watch it: the annotation
may have changed since. A valid credential is served until it ends."""


def confirm_account(profile: Profile, token: IdentityToken) -> None:
    """Raise Ended for the token of another ServiceAccount than the one whose annotations name the principal."""
    if profile.follows and profile.account_uid and token.account_uid not in {"", profile.account_uid}:
        raise Ended(
            f"{profile.name}: its ServiceAccount was created anew, and the agent cannot see which principal it names now",
            remedy="let the agent watch it (docs/rbac/watch.yaml)",
        )


def confirm_renewal(profile: Profile, account: Observation | None, now: datetime) -> None:
    """Raise Rejected if the agent has not been allowed to see for too long which principal the ServiceAccount names.

    While the API server cannot be reached, the last observation holds.
    """
    if not profile.follows or account is None or account.error is None or account.error.reaction is not Reaction.REJECTED:
        return
    seen = account.last_seen(now)
    if seen and (now - seen).total_seconds() > UNCONFIRMED_RENEWAL_SECONDS:
        raise Rejected(
            f"{profile.name}: {UNSEEN} since {seen:%Y-%m-%dT%H:%M:%SZ}, so its credential is not renewed: {account.error.message}",
            remedy=account.error.remedy,
        )


def described(token: IdentityToken) -> str:
    """Return whose a token is, for the log."""
    return " ".join(repeatable(part, ()) for part in token.principal if part)
