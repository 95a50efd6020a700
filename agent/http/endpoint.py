"""The settings `endpoint` and `proxy` of a provider: the values that would expose a token, or that have no effect."""

from collections.abc import Iterator

from agent.settings import Address, Url


def refused(endpoint: Url | None, proxy: Url | None, *, by: str) -> Iterator[tuple[str, str]]:
    """Return each invalid field and its remedy. `by`: the service at the endpoint."""
    if endpoint and endpoint.shown != endpoint.text:
        yield "endpoint", f"holds a user or password, which {by} does not take"
    if endpoint and endpoint.scheme == "http" and not Address(endpoint.hostname, 0).loopback:
        yield "endpoint", "would send the token in the clear: write https://, or http:// with a loopback address"
    if endpoint and endpoint.scheme == "http" and proxy:
        yield "proxy", "would see the token, because the endpoint is http://: write https:// there, or leave the proxy out"
