"""The `issuer` section of the configuration."""

from typing import Literal

from agent.settings import Address, Duration, Settings, Url


class Lifetime(Settings):
    """Bounds of what the issuer grants."""

    min: Duration = Duration(10)
    max: Duration = Duration(172800)


class Rotation(Settings):
    """How often the issuer's key is replaced, and how long before it signs it is published."""

    every: Duration = Duration(30 * 86400)
    publish_before: Duration = Duration(86400)


class IssuerBlock(Settings):
    """The embedded issuer: one per trust domain, not one per pod."""

    url: Url
    listen: tuple[Address, ...]
    state: str
    read_only: bool = False
    """Another process makes the keys in `state`: for example a Secret that several agents mount."""
    algorithm: Literal["RS256", "ES256"] = "RS256"
    lifetime: Lifetime = Lifetime()
    rotation: Rotation = Rotation()
