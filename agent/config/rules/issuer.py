"""Rules about the embedded issuer and those who use it."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from agent.config.fault import Finding
from agent.config.model import Config
from agent.issuer.rotation import MAX_LENGTH_SECONDS
from agent.sources.issuer import RESERVED_CLAIMS, IssuerSettings


def users(config: Config) -> Iterator[tuple[int, IssuerSettings]]:
    """The identities whose tokens are signed here."""
    for index, identity in enumerate(config.identities):
        if isinstance(identity.source, IssuerSettings):
            yield index, identity.source


def there(config: Config) -> Iterator[Finding]:
    """Who wants tokens of the issuer needs one."""
    for index, _ in users(config) if config.issuer is None else ():
        message = "issuer tokens need an `issuer` block at the top of the file: add one with url, listen and state"
        yield Finding(place=("identities", index, "source", "type"), message=message, rests_on=(("issuer",),))


def lifetimes(config: Config) -> Iterator[Finding]:
    """Each lifetime is one that the issuer grants."""
    if config.issuer is None:
        return
    bounds = config.issuer.lifetime
    for index, source in users(config):
        if bounds.min.seconds <= bounds.max.seconds and not bounds.min.seconds <= source.lifetime.seconds <= bounds.max.seconds:
            message = f"{source.lifetime} is not what the issuer grants: between {bounds.min} and {bounds.max} (issuer.lifetime)"
            yield Finding(place=("identities", index, "source", "lifetime"), message=message, rests_on=(("issuer", "lifetime"),))


def claims(config: Config) -> Iterator[Finding]:
    """Nobody sets by hand what says who the token is from, for and about, and how long."""
    for index, source in users(config):
        for claim in sorted(RESERVED_CLAIMS & source.claims.keys()):
            message = f"the agent sets this claim itself; reserved are {', '.join(sorted(RESERVED_CLAIMS))}"
            yield Finding(place=("identities", index, "source", "claims", claim), message=message)


def bounds(config: Config) -> Iterator[Finding]:
    """The issuer's own durations fit each other."""
    if (issuer := config.issuer) is None:
        return
    low, high = issuer.lifetime.min, issuer.lifetime.max
    place = ("issuer", "lifetime")
    if low.seconds < 1:
        yield Finding(place=(*place, "min"), message="must be at least 1s")
    if low.seconds > high.seconds:
        yield Finding(place=place, message=f"min ({low}) is longer than max ({high})")
    for key, length in (("lifetime", high), ("rotation", issuer.rotation.every)):
        if length.seconds > MAX_LENGTH_SECONDS:
            name = "max" if key == "lifetime" else "every"
            yield Finding(
                place=("issuer", key, name), message=f"must be at most {int(MAX_LENGTH_SECONDS) // 86400}d: {length} is beyond use"
            )
    every, before = issuer.rotation.every, issuer.rotation.publish_before
    if before.seconds < 1:
        yield Finding(place=("issuer", "rotation", "publishBefore"), message="must be at least 1s: nobody else could know the key")
    if before.seconds >= every.seconds:
        message = f"publishBefore ({before}) has to be shorter than every ({every})"
        yield Finding(place=("issuer", "rotation"), message=message)


def url(config: Config) -> Iterator[Finding]:
    """`iss` is compared byte for byte, and everybody sees it."""
    if config.issuer is None:
        return
    place = ("issuer", "url")
    text = config.issuer.url.text
    if text.endswith("/"):
        yield Finding(place=place, message="must not end with `/`: the discovery document's address is made by appending to it")
    if "@" in urlsplit(text).netloc:
        yield Finding(place=place, message="must not hold a user or password: it stands in every token")
    if config.issuer.url.scheme == "http":
        yield Finding(place=place, message="no cloud trusts an http issuer: use https outside of trials", warning=True)


RULES = (there, lifetimes, claims, bounds, url)
