"""Environment variables that make a program's SDK use an identity, before anybody has decided how to write them down."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

DOTENV_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
"""Values that need no quotes in a dotenv file."""


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of another variable, which may be a secret and so is never written out."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationValue:
    """A value with a client's authorization in it, which is a secret: what is written out is where that lies."""

    authorization: str | Variable
    """Path of the file that holds it, or the variable that does."""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVars:
    """What to set, and what must not be set beside it because SDKs would prefer it."""

    values: Mapping[str, str | Variable | AuthorizationValue]
    unset: tuple[str, ...] = ()
    additions: Mapping[str, str] = field(default_factory=dict)
    """To be added to lists that may be there already, such as NO_PROXY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAt:
    """Where one identity is served in one dialect."""

    dialect: str
    base: str
    """The metadata endpoint: `http://127.0.0.1:9481`."""
    root: str = ""
    """Where well-known paths are this identity's: at its own port, or at the endpoint itself; empty where nowhere."""
    authorization: str | Variable = ""
    """Path of the file that holds it, or the variable that does; empty in dialects that have none."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the dialect says of the identity beside its credential."""

    @property
    def host(self) -> str:
        """Of `root`: host and port."""
        return self.root.removeprefix("http://")

    @property
    def direct(self) -> Mapping[str, str]:
        """To be added to what a proxy must not be asked for."""
        host = (self.root or self.base).removeprefix("http://").rpartition(":")[0].strip("[]")
        more = "" if host in {"127.0.0.1", "localhost"} else f",{host}"
        return {name: f"{near}{more}" for name, near in LOOPBACK.items()}


LOOPBACK = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
"""SDKs send even loopback requests through HTTP_PROXY unless told not to."""


def dotenv_value(value: str) -> str:
    """Return a value as a dotenv file holds it: plain, or in single quotes, in which readers expand nothing."""
    if DOTENV_PLAIN.fullmatch(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
