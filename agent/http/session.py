"""The process's one HTTP client session, made on first use: no redirect, no cookie, no proxy from the environment."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from agent import __version__

if TYPE_CHECKING:
    import aiohttp

TIMEOUT = 30.0
"""Seconds: an upper bound under every call; each call sets its own, shorter one."""


class Session:
    """Closed when left."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session:
            await self._session.close()

    async def get(self) -> "aiohttp.ClientSession":
        """The session."""
        if self._session is None:
            import aiohttp  # noqa: PLC0415  # 33 MiB, there already wherever anything is served

            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT),
                trust_env=False,
                headers={"User-Agent": f"workload-identity-agent/{__version__}"},
            )
        return self._session
