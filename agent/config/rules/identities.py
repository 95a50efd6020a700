"""Rules about each identity as a whole."""

import re
from collections.abc import Iterator, Mapping

from agent.config.fault import Finding
from agent.config.model import Config
from agent.dialects import DIALECTS
from agent.providers.gcp.provider import GcpSettings
from agent.providers.generic import GenericSettings
from agent.sources.kubernetes import KubernetesSettings

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HELD = {"aws": "AWS sessions", "gcp": "Google access tokens", "azure": "Azure access tokens", "alibaba": "Alibaba Cloud sessions"}
UNRESERVED = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
"""What stands for itself in a path (RFC 3986, section 2.3)."""
POD_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
SHORTEST = 16
"""Characters of an `authorization`: what is shorter can be guessed."""


def some(config: Config) -> Iterator[Finding]:
    """An agent without identities is of no use, but may be on its way to be."""
    if not config.identities:
        yield Finding(place=("identities",), message="there are none, so the agent has nothing to do", warning=True)


def names(config: Config) -> Iterator[Finding]:
    """Each name once."""
    first: dict[str, int] = {}
    for index, identity in enumerate(config.identities):
        if identity.name in first:
            other = ("identities", first[identity.name], "name")
            message = "the name is already taken: give each identity its own"
            yield Finding(place=("identities", index, "name"), message=message, other=other, rests_on=(other,))
        first.setdefault(identity.name, index)


def idle(config: Config) -> Iterator[Finding]:
    """An identity that goes nowhere."""
    for index, identity in enumerate(config.identities):
        if not identity.sinks and not identity.serve.dialects:
            place = ("identities", index)
            message = "neither written nor served: add sinks or serve.dialects"
            yield Finding(place=place, message=message, warning=True, rests_on=((*place, "sinks"), (*place, "serve", "dialects")))


def audiences(config: Config) -> Iterator[Finding]:
    """A token has to be for somebody, and its `aud` is compared byte for byte."""
    for index, identity in enumerate(config.identities):
        place = ("identities", index, "provider", "audiences")
        follows = isinstance(identity.provider, GcpSettings)  # from the pool
        own = isinstance(identity.source, KubernetesSettings) and isinstance(identity.provider, GenericSettings)  # the API server's
        if not identity.provider.audiences and not follows and not own:
            yield Finding(place=place, message="empty: name at least one audience that the token is for")
        for position, audience in enumerate(identity.provider.audiences):
            if not audience or not audience.isascii() or not audience.isprintable():
                yield Finding(place=(*place, position), message="an audience has to be printable ASCII, and not empty")


def tokens_of_the_api_server(config: Config) -> Iterator[Finding]:
    """Without an audience, the token is the ServiceAccount itself."""
    for index, identity in enumerate(config.identities):
        if (
            isinstance(identity.source, KubernetesSettings)
            and not identity.provider.audiences
            and isinstance(identity.provider, GenericSettings)
        ):
            message = "empty: the token is good at the API server, with all rights of the ServiceAccount: name the audience it is for"
            yield Finding(place=("identities", index, "provider", "audiences"), message=message, warning=True)


def dialects(config: Config) -> Iterator[Finding]:
    """Only what the provider holds can be served."""
    for index, identity in enumerate(config.identities):
        provider = identity.provider
        place = ("identities", index, "serve", "dialects")
        grounds = (("identities", index, "provider"),)
        for position, dialect in enumerate(identity.serve.dialects):
            needed = DIALECTS[dialect].provider
            if not (provider.__struct_config__.tag == needed and getattr(provider, "exchange", True)):
                message = f"{dialect} serves {HELD[needed]}: it needs provider type {needed} with exchange: true"
                yield Finding(place=(*place, position), message=message, rests_on=grounds)


def authorization(text: str, environ: Mapping[str, str]) -> str:
    """What a client has to present. `${NAME}` stands for that variable.

    Raises ValueError, without the text, where it cannot be used as the value of an HTTP header or can be guessed.
    """
    variable = VARIABLE.fullmatch(text)
    if variable and not environ.get(variable[1]):
        raise ValueError(f"the environment variable {variable[1]} is not set, or empty")
    if not variable and "${" in text:
        raise ValueError("${NAME} has to be the whole of the text")
    found = environ[variable[1]] if variable else text
    whose = f"the value of {variable[1]}" if variable else "the text"
    if len(found) < SHORTEST:
        raise ValueError(f"{whose} is too short: at least {SHORTEST} characters")
    if not re.fullmatch(r"[\x21-\x7e]+", found, re.ASCII):
        raise ValueError(f"{whose} has to be printable ASCII without spaces or line breaks")
    return found


def authorizations(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Each can be used, is one identity's, and stands neither in the file nor in every container's reach."""
    first: dict[str, int] = {}
    for index, identity in enumerate(config.identities):
        text = identity.serve.authorization
        place = ("identities", index, "serve", "authorization")
        if text is None:
            continue
        try:
            found = authorization(text, environ)
            if "uri" in identity.serve.dialects and not UNRESERVED.fullmatch(found):
                yield Finding(place=place, message="has to be letters, digits and -._~ only: the dialect uri has it in a path")
        except ValueError as error:
            yield Finding(place=place, message=str(error))
        else:
            if POD_UID.fullmatch(found):
                message = (
                    "has the form of a pod's UID, which every container of the pod can read in /proc/self/mountinfo: use a random text"
                )
                yield Finding(place=place, message=message, warning=True)
            if found in first:
                other = ("identities", first[found], "serve", "authorization")
                message = f"the same text as {config.identities[first[found]].name}'s: a client of one is served as the other"
                yield Finding(place=place, message=message, warning=True, other=other)
            first.setdefault(found, index)
        if not VARIABLE.fullmatch(text):
            message = "a secret in the configuration file: write ${NAME} and set that environment variable"
            yield Finding(place=place, message=message, warning=True)


RULES = (some, names, idle, audiences, tokens_of_the_api_server, dialects)
