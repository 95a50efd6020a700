"""Rules about the embedded issuer and the identities whose tokens it signs."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from agent.config.fault import Finding
from agent.config.model import Config
from agent.issuer.rotation import MAX_LENGTH_SECONDS
from agent.sources.issuer import RESERVED_CLAIMS, IssuerSettings


def users(config: Config) -> Iterator[tuple[int, IssuerSettings]]:
    """Yield index and source of each identity whose tokens the embedded issuer signs."""
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, IssuerSettings):
            yield index, identity.source


def present(config: Config) -> Iterator[Finding]:
    """Refuse source `issuer` without an `issuer` block."""
    for index, _ in users(config) if config.issuer is None else ():
        message = "the file has no `issuer` block: add one at its top, with url, listen and state"
        yield Finding(place=("identities", index, "source", "type"), message=message, rests_on=(("issuer",),))


def lifetimes(config: Config) -> Iterator[Finding]:
    """Refuse a lifetime that the issuer does not grant."""
    if config.issuer is None:
        return
    bounds = config.issuer.lifetime
    for index, source in users(config):
        if bounds.min.seconds <= bounds.max.seconds and not bounds.min.seconds <= source.lifetime.seconds <= bounds.max.seconds:
            message = f"the issuer does not grant {source.lifetime}: write {bounds.min} to {bounds.max}, or change issuer.lifetime"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message, rests_on=(("issuer", "lifetime"),))


def claims(config: Config) -> Iterator[Finding]:
    """Refuse claims that the agent sets: issuer, subject, audiences, times and ID of the token."""
    for index, source in users(config):
        for claim in sorted(RESERVED_CLAIMS & source.claims.keys()):
            message = f"the agent sets this claim itself: remove it; reserved are {', '.join(sorted(RESERVED_CLAIMS))}"
            yield Finding(place=("identities", index, "source", "claims", claim), message=message)


def bounds(config: Config) -> Iterator[Finding]:
    """Refuse durations of the issuer that contradict each other."""
    if (issuer := config.issuer) is None:
        return
    low, high = issuer.lifetime.min, issuer.lifetime.max
    place = ("issuer", "lifetime")
    if low.seconds < 1:
        yield Finding(place=(*place, "min"), message="must be at least 1s")
    if low.seconds > high.seconds:
        yield Finding(place=place, message=f"min ({low}) must not be longer than max ({high})")
    for key, length in (("lifetime", high), ("rotation", issuer.rotation.every)):
        if length.seconds > MAX_LENGTH_SECONDS:
            name = "max" if key == "lifetime" else "every"
            yield Finding(place=("issuer", key, name), message=f"must be at most {int(MAX_LENGTH_SECONDS) // 86400}d, not {length}")
    every, before = issuer.rotation.every, issuer.rotation.publish_before
    if before.seconds < 1:
        yield Finding(
            place=("issuer", "rotation", "publishBefore"), message="must be at least 1s: verifiers must know the key before it signs"
        )
    if before.seconds >= every.seconds:
        message = f"publishBefore ({before}) must be shorter than every ({every})"
        yield Finding(place=("issuer", "rotation"), message=message)


def url(config: Config) -> Iterator[Finding]:
    """Refuse an issuer URL that verifiers, which compare bytes, could not match, or that makes a secret public."""
    if config.issuer is None:
        return
    place = ("issuer", "url")
    text = config.issuer.url.text
    if text.endswith("/"):
        yield Finding(place=place, message="must not end with `/`: verifiers append the path of the discovery document to it")
    if "@" in urlsplit(text).netloc:
        yield Finding(place=place, message="must not hold a user or password: every token repeats it")
    if config.issuer.url.scheme == "http":
        yield Finding(place=place, message="clouds trust https issuers only: use https outside of trials", warning=True)


RULES = (present, lifetimes, claims, bounds, url)
