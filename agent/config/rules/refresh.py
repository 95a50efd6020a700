"""Rules about the times at which credentials are refreshed."""

import math
from collections.abc import Iterator

from agent.config.fault import Finding, Place
from agent.config.model import Config
from agent.dialects import credential_margin, shortest, token_margin
from agent.settings import Duration


def jitters(config: Config) -> Iterator[Finding]:
    """Refuse a jitter by which a refresh would be due before its credential was issued."""
    place: Place = ("refresh", "jitter")
    general = config.refresh
    if general.jitter >= general.at:
        message = f"jitter ({general.jitter}) must be less than at ({general.at})"
        yield Finding(place=place, message=message, rests_on=(("refresh", "at"),))
    for index, identity in enumerate(config.identities):
        own = identity.refresh
        if own.at is None and own.jitter is None:
            continue
        at = general.at if own.at is None else own.at
        jitter = general.jitter if own.jitter is None else own.jitter
        if jitter >= at:
            here: Place = ("identities", index, "refresh")
            message = f"jitter ({jitter}) must be less than at ({at})"
            yield Finding(place=here, message=message, rests_on=(place, ("refresh", "at")))


def positive(config: Config) -> Iterator[Finding]:
    """Refuse durations of less than a second."""
    general = config.refresh
    durations: list[tuple[Place, Duration | None]] = [
        (("refresh", "maxAge"), general.max_age),
        (("refresh", "maxUse"), general.max_use),
        (("refresh", "timeout"), general.timeout),
        (("refresh", "backoff", "initial"), general.backoff.initial),
    ]
    for index, identity in enumerate(config.identities):
        place = ("identities", index, "refresh")
        own = identity.refresh
        durations += [((*place, "maxAge"), own.max_age), ((*place, "maxUse"), own.max_use), ((*place, "timeout"), own.timeout)]
    for where, duration in durations:
        if duration and duration.seconds < 1:
            yield Finding(place=where, message="must be at least 1s")


def backoff(config: Config) -> Iterator[Finding]:
    """Refuse a first pause that is longer than the longest."""
    initial, longest = config.refresh.backoff.initial, config.refresh.backoff.max
    if initial.seconds > longest.seconds:
        yield Finding(place=("refresh", "backoff"), message=f"initial ({initial}) must not be longer than max ({longest})")


def margins(config: Config) -> Iterator[Finding]:
    """Refuse a lifetime that its readers' margin would use up."""
    for index, identity in enumerate(config.identities):
        place = ("identities", index)
        token = token_margin(str(identity.provider.__struct_config__.tag), written=bool(identity.sinks))
        credential = credential_margin(identity.serve.dialects)
        durations = (
            ((*place, "source", "lifetime"), getattr(identity.source, "lifetime", None), token, (*place, "sinks")),
            ((*place, "provider", "duration"), identity.provider.requested_lifetime, credential, (*place, "serve", "dialects")),
        )
        for where, duration, margin, grounds in durations:
            if isinstance(duration, Duration) and duration.seconds < shortest(margin):
                needed = Duration(60 * math.ceil(shortest(margin) / 60))
                message = f"{duration} is too short: SDKs need {Duration(int(margin))} of it left, so write at least {needed}"
                yield Finding(place=where, message=message, rests_on=(grounds, (*place, "provider", "type")))


RULES = (jitters, positive, backoff, margins)
