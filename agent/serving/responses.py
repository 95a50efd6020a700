"""A credential as a dialect renders it (`RenderedCredential`), and the bytes that are sent for it (`PreparedResponse`).

Both are made once and used any number of times. aiohttp's own response serves one request, and to make and write one costs as
much as everything else that the endpoint does for the request.
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
    """A response for one second, because of its Date. Holds nothing of a request, so any number of requests may share it."""

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
        """Send the whole response. Raises ConnectionResetError if the client has disconnected."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        transport.write(self._written)

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be sent."""


def suits(request: web.BaseRequest) -> bool:
    """Return whether a prepared response suits; aiohttp's own response handles other requests, and clients that read slowly."""
    return request.method == "GET" and request.version == HttpVersion11 and request.keep_alive and not request.protocol.writing_paused


NEVER = datetime.min.replace(tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class RenderedCredential:
    """A grant as one dialect renders it, valid until the grant or the profile is replaced."""

    record: Record
    grant: Grant
    profile: Profile
    rendered: Rendered
    expires_at: datetime
    late_after: datetime
    """From then on it counts as stale when it is served."""
    _reply: PreparedResponse | None = field(default=None, repr=False)
    _since: datetime = NEVER
    _until: datetime = NEVER

    def good(self, profile: Profile, now: datetime) -> bool:
        """Return whether it is of the newest grant and these settings, and has not expired."""
        return self.record.grant is self.grant and self.profile is profile and now < self.expires_at

    def at(self, now: datetime) -> PreparedResponse:
        """Return the response at this moment."""
        if self._reply is None or not self._since <= now < self._until:
            self._since, self._until = now, min(now.replace(microsecond=0) + SECOND, self.rendered.until(now))
            self._reply = PreparedResponse(self.rendered.at(now), now)
        return self._reply
