"""Identity tokens from the agent's own issuer (`issuer:` in the configuration), for trust domains without one."""

from typing import Annotated, Any

import msgspec

from agent.settings import Duration, Settings


class IssuerSettings(Settings, tag="issuer", tag_field="type"):
    """A token signed here, for this subject."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
    lifetime: Duration = Duration(3600)
    claims: dict[str, Any] = {}
