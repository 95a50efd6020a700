"""The process's one botocore session and its clients, one for each endpoint, kept for good.

A new client costs 20 ms of the event loop and a new session 60 to 180 ms and 8 MiB, so the process makes each once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from agent.errors import RefreshError, Unavailable, without_context
from agent.providers.aws.credentials import Keys
from agent.providers.aws.regions import DATA
from agent.providers.aws.transport import Endpoint, Transport
from agent.providers.exchange import SIGN_IN_PAGE, ServiceError

if TYPE_CHECKING:
    import aiohttp


class AwsClients:
    """One for the process. The constructor loads nothing; `async with` or `close` closes every client."""

    def __init__(self, http: "Callable[[], Awaitable[aiohttp.ClientSession]]", *, timeout: float = 10.0) -> None:
        self._http = http
        self._timeout = timeout
        """Seconds for one request in total."""
        self._session: Any = None
        self._clients: dict[Endpoint, Any] = {}
        self._stack = AsyncExitStack()
        self._making = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every client. A later call makes new ones."""
        self._clients.clear()
        await self._stack.aclose()

    async def client(self, endpoint: Endpoint) -> Any:
        """Return the unsigned STS client for this endpoint; the same one each time."""
        async with self._making:
            if endpoint not in self._clients:
                self._clients[endpoint] = await self._stack.enter_async_context(self._create(endpoint, None))
            return self._clients[endpoint]

    async def call(self, endpoint: Endpoint, method: str, parameters: Mapping[str, Any], *, whose: str, keys: Keys | None = None) -> Any:
        """Send a request to STS: `method` as botocore names it, the answer as botocore reads it.

        With keys, a client that lives as long as the call signs the request. Raises ServiceError if STS returns an error,
        else Unavailable or Rejected; neither the text nor the context repeats anything that was sent or received.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  # 11 MiB with the client, once an exchange is wanted
        from botocore.parsers import ResponseParserError  # noqa: PLC0415  # the same

        with without_context():
            try:
                if keys is None:
                    return await getattr(await self.client(endpoint), method)(**parameters)
                async with self._create(endpoint, keys) as client:
                    return await getattr(client, method)(**parameters)
            except RefreshError as error:
                error.message = f"{whose}: {error.message}"
                raise
            except ClientError as error:
                raise _service_error(error.response) from None
            except (BotoCoreError, ResponseParserError, ArithmeticError, LookupError, RuntimeError, ValueError) as error:
                # botocore's parser, for an answer that is not STS's XML or has an invalid time: the text would quote the answer
                raise Unavailable(
                    f"{whose}: cannot read the answer of {endpoint.url.host} ({type(error).__name__})", remedy=SIGN_IN_PAGE
                ) from None

    def _create(self, endpoint: Endpoint, keys: Keys | None) -> Any:
        """Return a client, to be entered. Each of its settings is set here, so it takes none from the environment."""
        from aiobotocore.config import AioConfig  # noqa: PLC0415  # see `call`
        from botocore import UNSIGNED  # noqa: PLC0415

        transport = Transport(self._http, endpoint, self._timeout)
        config = AioConfig(
            http_session_cls=lambda **_: transport,  # only called: no class is needed
            retries={"total_max_attempts": 1},  # the keeper is the only retrier
            parameter_validation=False,  # settings were validated; botocore's error quotes the token
            signature_version=None if keys else UNSIGNED,
            ignore_configured_endpoint_urls=True,
        )
        signing = {}
        if keys:
            signing = {
                "aws_access_key_id": keys.access_key_id,
                "aws_secret_access_key": keys.secret_access_key.reveal(),
                "aws_session_token": keys.session_token.reveal(),
            }
        self._session = self._session or _session()
        return self._session.create_client(
            "sts", region_name=endpoint.region, endpoint_url=endpoint.url.text, verify=True, config=config, **signing
        )


def _service_error(response: Mapping[str, Any]) -> ServiceError:
    error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    return ServiceError(
        code=str(error.get("Code") or ""),
        text=str(error.get("Message") or ""),
        status=int(metadata.get("HTTPStatusCode", 0)),
        retry_after=str(metadata.get("HTTPHeaders", {}).get("retry-after", "")),
    )


def _session() -> Any:
    """Return a session with botocore's defaults alone: no AWS_* variable, no shared file, no instance metadata."""
    from aiobotocore.session import AioSession  # noqa: PLC0415  # see `AwsClients.call`
    from botocore.configprovider import (  # noqa: PLC0415  # the same
        BOTOCORE_DEFAUT_SESSION_VARIABLES,
        ConfigValueStore,
        ConstantProvider,
    )
    from botocore.loaders import Loader  # noqa: PLC0415  # the same

    class Isolated(AioSession):  # type: ignore[misc]  # botocore has no types
        full_config: Mapping[str, Any] = {"profiles": {}}  # not the shared files

    for name in ("botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.WARNING)  # at DEBUG they print each request and each answer whole
    session = Isolated()
    defaults = {name: ConstantProvider(default) for name, (_, _, default, _) in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()}
    session.register_component("config_store", ConfigValueStore(mapping=defaults))
    session.register_component("data_loader", Loader(extra_search_paths=[str(DATA)], include_default_search_paths=False))
    return session
