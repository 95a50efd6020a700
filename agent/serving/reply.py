"""A good answer as the bytes that go out: written once, sent any number of times.

A response of aiohttp's own serves one request, and to make and write one costs as much as everything else that is done for it.
"""

from datetime import datetime
from email.utils import format_datetime

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http import SERVER_SOFTWARE

from agent.serving.dialect import Answer


class Reply(web.StreamResponse):
    """As it is sent within one second, for its Date is the second's. Keeps nothing of a request, so any number may share it."""

    def __init__(self, answer: Answer, now: datetime) -> None:
        """`answer`: its headers are the dialect's own, with nothing in them that a client has sent."""
        super().__init__(status=answer.status, headers={hdrs.SERVER: SERVER_SOFTWARE, **answer.headers})
        self.answer = answer
        lines = {**self.headers, hdrs.CONTENT_LENGTH: str(len(answer.body)), hdrs.DATE: format_datetime(now, usegmt=True)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._written = f"HTTP/1.1 {self.status} {self.reason}\r\n{head}\r\n".encode() + answer.body

    @property
    def keep_alive(self) -> bool:
        """See `suits`."""
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        """Sends all of it. Raises ConnectionResetError where nobody is there any more."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(self._written)

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be sent."""


def suits(request: web.BaseRequest) -> bool:
    """Whether a reply can be sent as it is: the rest is what aiohttp's own response sees to, and the waiting for a slow reader."""
    return request.method == "GET" and request.version == HttpVersion11 and request.keep_alive and not request.protocol.writing_paused
