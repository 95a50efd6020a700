"""A grant as the clients of one identity are given it: worked out once, for it is asked for thousands of times."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agent.model import Grant
from agent.record import Profile, Record
from agent.serving.dialect import Rendered
from agent.serving.reply import Reply

NEVER = datetime.min.replace(tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class Portion:
    """For as long as neither the grant nor the profile is replaced."""

    record: Record
    grant: Grant
    profile: Profile
    rendered: Rendered
    expires_at: datetime
    late_after: datetime
    """From then on it is handed out for want of a better one."""
    _reply: Reply | None = field(default=None, repr=False)
    _since: datetime = NEVER
    _until: datetime = NEVER

    def good(self, profile: Profile, now: datetime) -> bool:
        """Whether it is the newest there is, for these settings, and works."""
        return self.record.grant is self.grant and self.profile is profile and now < self.expires_at

    def at(self, now: datetime) -> Reply:
        """As it is sent at this moment."""
        if self._reply is None or not self._since <= now < self._until:
            self._since, self._until = now, min(now.replace(microsecond=0) + SECOND, self.rendered.until(now))
            self._reply = Reply(self.rendered.at(now), now)
        return self._reply
