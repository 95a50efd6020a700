"""One identity that is whoever its ServiceAccount says, as its workload and its clients meet it."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from agent.clock import WallClock
from agent.config.model import Config
from agent.counters import Counters
from agent.http.session import Session
from agent.identities.supervisor import Supervisor
from agent.model import Key
from agent.settings import convert
from agent.store import Store
from agent.tasks import Tasks
from agent.toolbox import Resources, Toolbox
from tests.processor import own_time
from tests.servers.site import Site

ROLE = "arn:aws:iam::123456789012:role/"
ANNOTATION = "eks.amazonaws.com/role-arn"
"""EKS' own."""


class Cloud(Site):
    """STS that believes everybody; the session says whose it is."""

    def __init__(self):
        super().__init__(None)
        self.asked = []
        """Roles, in order."""
        self.instead = None
        """Answers in its place."""

    async def answer(self, request):
        if self.instead:
            return self.instead(request)
        form = {key: values[0] for key, values in parse_qs((await request.read()).decode()).items()}
        role = form["RoleArn"]
        self.asked.append(role.rpartition("/")[2])
        expires = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = (
            f"<AccessKeyId>ASIA{len(self.asked):016d}</AccessKeyId><SecretAccessKey>{'s' * 40}</SecretAccessKey>"
            f"<SessionToken>session-of-{role.rpartition('/')[2]}</SessionToken><Expiration>{expires}</Expiration>"
        )
        user = f"<AssumedRoleUser><Arn>{role}/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>"
        result = f"<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials>{user}</AssumeRoleWithWebIdentityResult>"
        text = f'<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{result}'
        return web.Response(text=f"{text}</AssumeRoleWithWebIdentityResponse>", content_type="text/xml")


class Scene:
    """One identity, `app`, as its workload and its clients meet it."""

    def __init__(self, cluster, folder, cloud):
        self.cluster = cluster
        self.folder = folder
        self.cloud = cloud
        self.store = Store()
        self.supervisor = None

    def config(self, **changes):
        provider = {"type": "aws", "fromServiceAccount": True, "region": "eu-west-1", "endpoint": self.cloud.url}
        provider |= changes.pop("provider", {})
        identity = {
            "name": "app",
            "source": {"type": "kubernetes", "serviceAccount": {"namespace": self.cluster.namespace, "name": "app"}},
            "provider": provider,
            "sinks": [{"type": "files", "directory": str(self.folder / "app"), "grace": "0s"}],
            "serve": {"dialects": ["container"]},
        }
        return convert({"identities": [identity | changes]}, Config)

    @asynccontextmanager
    async def running(self, config=None):
        clock = WallClock()
        async with self.cluster.clients() as kube, Session() as session, Resources(session.get) as resources:
            toolbox = Toolbox(clock=clock, random=Random(1), counters=Counters(), http=session.get, resources=resources, kube=kube)
            try:
                async with asyncio.TaskGroup() as group:
                    self.supervisor = Supervisor(self.store, toolbox, Tasks(group, self.store, toolbox), {})
                    await self.supervisor.apply(config or self.config())
                    yield
                    raise EOFError
            except* EOFError:
                await self.supervisor.close()

    @property
    def served(self):
        """The session token that the endpoint would hand out."""
        grant = self.store.usable(Key("app"), WallClock().now())
        return grant and grant.credential.document()["Token"].reveal()

    @property
    def written(self):
        """The role that the workload reads of; `""` where nothing lies there, no link and no generation either."""
        try:
            return json.loads((self.folder / "app" / "config").read_text())["roleARN"].rpartition("/")[2]
        except FileNotFoundError:
            # by os.walk: Path.rglob raises FileNotFoundError where a directory goes while it looks, as they do here
            left = {name for _, folders, files in os.walk(self.folder) for name in (*folders, *files)}
            return "something" if left - {"app", "authorization", "..lock"} else ""

    @property
    def failure(self):
        record = self.store.record(Key("app"))
        return record.failure.message if record and record.failure else ""

    @property
    def remedy(self):
        record = self.store.record(Key("app"))
        return record.failure.remedy if record and record.failure else ""

    @property
    def state(self):
        return self.store.state("app", WallClock().now())

    async def reported(self, text):
        """Wait until the identity's failure holds this text: it is noted a moment after the credential is withdrawn."""
        async with asyncio.timeout(60):
            while text not in self.failure:
                await asyncio.sleep(0.01)

    async def until(self, role, within=60.0):
        """Files and endpoint are those of this role, or of none if it is empty; at no moment of another.

        `within`: seconds, without those in which other programs had the processors.
        """
        last = own_time() + within
        while not (self.served == (f"session-of-{role}" if role else None) and self.written == role):
            if own_time() > last:
                raise TimeoutError
            await asyncio.sleep(0.01)


@pytest.fixture
async def scene(cluster, tmp_path):
    await cluster.allow("watch.yaml", "app")
    (tmp_path / "files").mkdir()
    async with Cloud() as cloud:
        yield Scene(cluster, tmp_path / "files", cloud)
