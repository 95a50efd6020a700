"""Rules about each identity as a whole."""

import re
from collections.abc import Iterator, Mapping

from agent.config.authorization import authorization, variable
from agent.config.fault import Finding
from agent.config.model import Config
from agent.dialects import DIALECTS
from agent.providers.gcp.settings import GcpSettings
from agent.providers.generic import GenericSettings
from agent.sources.kubernetes import KubernetesSettings

PROVIDER_CREDENTIALS = {
    "aws": "AWS sessions",
    "gcp": "Google access tokens",
    "azure": "Azure access tokens",
    "alibaba": "Alibaba Cloud sessions",
}
UNRESERVED_CHARACTERS = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
"""The characters that a path may hold unescaped (RFC 3986, section 2.3)."""
POD_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def some(config: Config) -> Iterator[Finding]:
    """Warn of a configuration without identities: the agent does nothing, which may be meant for a while."""
    if not config.identities:
        yield Finding(place=("identities",), message="the list is empty, so the agent keeps nothing fresh: add an identity", warning=True)


def names(config: Config) -> Iterator[Finding]:
    """Refuse a name that two identities have."""
    first: dict[str, int] = {}
    for index, identity in enumerate(config.identities):
        if identity.name in first:
            other = ("identities", first[identity.name], "name")
            message = "another identity has this name: give each identity its own"
            yield Finding(place=("identities", index, "name"), message=message, other=other, rests_on=(other,))
        first.setdefault(identity.name, index)


def idle(config: Config) -> Iterator[Finding]:
    """Warn of an identity that reaches no workload."""
    for index, identity in enumerate(config.identities):
        if not identity.sinks and not identity.serve.dialects:
            place = ("identities", index)
            message = "the identity is neither written to files nor served: add sinks or serve.dialects"
            yield Finding(place=place, message=message, warning=True, rests_on=((*place, "sinks"), (*place, "serve", "dialects")))


def audiences(config: Config) -> Iterator[Finding]:
    """Refuse a token without an audience, and an audience that a verifier, which compares bytes, could not match."""
    for index, identity in enumerate(config.identities):
        place = ("identities", index, "provider", "audiences")
        follows = isinstance(identity.provider, GcpSettings)  # from the pool
        own = isinstance(identity.source, KubernetesSettings) and isinstance(identity.provider, GenericSettings)  # the API server's
        if not identity.provider.audiences and not follows and not own:
            yield Finding(place=place, message="empty: name at least one audience that the token is for")
        for position, audience in enumerate(identity.provider.audiences):
            if not audience or not audience.isascii() or not audience.isprintable():
                yield Finding(place=(*place, position), message="an audience must be printable ASCII and not empty")


def tokens_of_the_api_server(config: Config) -> Iterator[Finding]:
    """Warn of a token without an audience: the API server accepts it as the ServiceAccount."""
    for index, identity in enumerate(config.identities):
        if (
            isinstance(identity.source, KubernetesSettings)
            and not identity.provider.audiences
            and isinstance(identity.provider, GenericSettings)
        ):
            message = "empty, so the API server accepts the token, with all rights of the ServiceAccount: name the audience it is for"
            yield Finding(place=("identities", index, "provider", "audiences"), message=message, warning=True)


def dialects(config: Config) -> Iterator[Finding]:
    """Refuse a dialect that serves credentials of another provider."""
    for index, identity in enumerate(config.identities):
        provider = identity.provider
        place = ("identities", index, "serve", "dialects")
        grounds = (("identities", index, "provider"),)
        for position, dialect in enumerate(identity.serve.dialects):
            needed = DIALECTS[dialect].provider
            if not (provider.__struct_config__.tag == needed and provider.exchanges):
                message = f"{dialect} serves {PROVIDER_CREDENTIALS[needed]}: it needs provider type {needed} with exchange: true"
                yield Finding(place=(*place, position), message=message, rests_on=grounds)


def authorizations(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Refuse an unusable authorization. Warn of one that two identities share, that the file holds, or that every container can read."""
    first: dict[str, int] = {}
    for index, identity in enumerate(config.identities):
        text = identity.serve.authorization
        place = ("identities", index, "serve", "authorization")
        if text is None:
            continue
        try:
            found = authorization(text, environ)
            if "uri" in identity.serve.dialects and not UNRESERVED_CHARACTERS.fullmatch(found):
                yield Finding(place=place, message="must hold letters, digits and -._~ only: the dialect uri has it in a path")
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
                twin = config.identities[first[found]].name
                message = f"{twin} has the same text, so a client of one is served the other: give each identity its own"
                yield Finding(place=place, message=message, warning=True, other=other)
            first.setdefault(found, index)
        if variable(text) is None:
            message = "the configuration file holds a secret: write ${NAME} and set that environment variable"
            yield Finding(place=place, message=message, warning=True)


RULES = (some, names, idle, audiences, tokens_of_the_api_server, dialects)
