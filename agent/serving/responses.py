"""A good answer as the bytes that go out: written once, sent any number of times.

A response of aiohttp's own serves one request, and to make and write one costs as much as everything else that is done for it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http import SERVER_SOFTWARE

from agent.model import Grant
from agent.record import Profile, Record
from agent.serving.dialect import Answer, Rendered


class PreparedResponse(web.StreamResponse):
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


NEVER = datetime.min.replace(tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class RenderedCredential:
    """For as long as neither the grant nor the profile is replaced."""

    record: Record
    grant: Grant
    profile: Profile
    rendered: Rendered
    expires_at: datetime
    late_after: datetime
    """From then on it is handed out for want of a better one."""
    _reply: PreparedResponse | None = field(default=None, repr=False)
    _since: datetime = NEVER
    _until: datetime = NEVER

    def good(self, profile: Profile, now: datetime) -> bool:
        """Whether it is the newest there is, for these settings, and works."""
        return self.record.grant is self.grant and self.profile is profile and now < self.expires_at

    def at(self, now: datetime) -> PreparedResponse:
        """As it is sent at this moment."""
        if self._reply is None or not self._since <= now < self._until:
            self._since, self._until = now, min(now.replace(microsecond=0) + SECOND, self.rendered.until(now))
            self._reply = PreparedResponse(self.rendered.at(now), now)
        return self._reply
