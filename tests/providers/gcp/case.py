"""What the tests of an exchange with Google share."""

from pathlib import PurePosixPath
from typing import Any

import pytest

from agent.errors import RefreshError
from agent.model import Credential, Delivery, Paths, PriorDelivery
from tests.servers.gcp import Google

PATHS = Paths(directory=PurePosixPath("/var/run/identities/reader"))
MIDDLE = "middle@demo-project.iam.gserviceaccount.com"
SCOPES = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email"
READ_ONLY = "https://www.googleapis.com/auth/devstorage.read_only"
STATUS = "/v1/projects/-/serviceAccounts/"


def delivered(credential: Credential) -> PriorDelivery:
    """As a sink hands it back after a restart."""
    issued_at, expires_at = credential.issued_at, credential.expires_at
    times = {"credential_issued_at": issued_at, "credential_expires_at": expires_at}
    delivery = Delivery(generation=0, token_issued_at=None, token_expires_at=None, **times)
    return PriorDelivery(token=None, files=credential.files(PATHS), delivery=delivery)


async def failure(one: Google, token: Any = None, variant: str = "", **settings: Any) -> RefreshError:
    """What the exchange raises; nothing that was granted, and nothing of the token, is in it or behind it."""
    token = token or one.token()
    with pytest.raises(RefreshError) as caught:
        await one.provider(**settings).exchange(token, variant)
    error: BaseException | None = caught.value
    assert caught.value.message.startswith("reader: ")
    secrets = [*token.value.reveal().split("."), *one.gcp.sessions]
    while error is not None:
        for text in (str(error), repr(error), repr(error.args), repr(vars(error))):
            assert not any(secret in text for secret in secrets)
        error = error.__cause__ or error.__context__
    return caught.value
