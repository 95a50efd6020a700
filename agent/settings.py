"""The shapes that settings are made of: strict structs and the scalars that are written as text.

Every adapter declares its own settings with these; `config.py` puts them together.
"""

import hashlib
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import fields


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Block(msgspec.StructMeta):
    """Tells type checkers what `Settings` hands down to its subclasses."""


class Settings(msgspec.Struct, metaclass=_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A block of the configuration: unknown keys are refused, defaults stand here and nowhere else."""


class Scalar:
    """A setting written as one string."""

    pattern: ClassVar[str]
    allowed: ClassVar[str]
    """What to write, for the person who wrote something else."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, saying what is wrong and what is allowed."""
        raise NotImplementedError


_Scalar = TypeVar("_Scalar", bound=Scalar)


@dataclass_transform(frozen_default=True)
def scalar(kind: type[_Scalar]) -> type[_Scalar]:
    """A frozen dataclass that is not known as one, or msgspec would decode it field by field and never ask the hooks."""
    made = dataclass(frozen=True)(kind)
    del made.__dataclass_fields__  # type: ignore[attr-defined]  # mypy knows it only of what the decorator made
    return made


@scalar
class Duration(Scalar):
    """A length of time such as `10s`, `5m`, `1h`, `30d`."""

    seconds: int
    pattern = r"^[0-9]{1,9}(s|m|h|d)$(?!\n)"
    allowed = "a number and a unit, such as 10s, 5m, 1h or 30d"

    @classmethod
    def parse(cls, text: str) -> Self:
        if not re.fullmatch(cls.pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is not a duration: write {cls.allowed}")
        return cls(int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]])

    def __str__(self) -> str:
        for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
            if self.seconds and self.seconds % seconds == 0:
                return f"{self.seconds // seconds}{unit}"
        return f"{self.seconds}s"


@scalar
class FileMode(Scalar):
    """A file mode such as `"0640"`; a string, because YAML reads a bare 0640 as the number 416."""

    bits: int
    pattern = r"^0?[0-7]{3}$(?!\n)"
    allowed = 'a quoted octal string such as "0640", without setuid, setgid or sticky bits'

    @classmethod
    def parse(cls, text: str) -> Self:
        if not re.fullmatch(cls.pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is not a file mode: write {cls.allowed}")
        return cls(int(text, 8))

    def __str__(self) -> str:
        return f"{self.bits:04o}"


@scalar
class Address(Scalar):
    """Where to listen: `host:port`, `[v6]:port`, `:port` (all families) or `unix:/path`."""

    host: str
    """Empty for all families, or for a socket file."""
    port: int
    path: str = ""
    pattern = r"^(unix:.+|(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]*):[0-9]{1,5})$(?!\n)"
    allowed = "host:port, [v6]:port, :port or unix:/path"

    @classmethod
    def parse(cls, text: str) -> Self:
        if not re.fullmatch(cls.pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is not a listen address: write {cls.allowed}")
        if text.startswith("unix:"):
            return cls("", 0, text.removeprefix("unix:"))
        host, _, port = text.rpartition(":")
        if int(port) > 65535:
            raise ValueError(f"{text!r} is not a listen address: a port is at most 65535")
        return cls(host.strip("[]"), int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine (and its socket files' readers) can reach it."""
        try:
            return bool(self.path) or ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@scalar
class Url(Scalar):
    """An http or https URL. Its text may hold a password; `shown` does not."""

    text: str
    pattern = r"^https?://[^\s/?#]+[^\s?#]*$(?!\n)"
    allowed = "an http:// or https:// URL of plain ASCII, without query or fragment"

    @classmethod
    def parse(cls, text: str) -> Self:
        if not text.isascii() or not text.isprintable() or not re.fullmatch(cls.pattern, text, re.ASCII):
            raise ValueError(f"not a URL that can be used: write {cls.allowed}")
        try:
            parts = urlsplit(text)
            _ = parts.port
        except ValueError:  # whose text may hold a part of a password
            raise ValueError(f"the URL's host or port is none: write {cls.allowed}") from None
        if not parts.hostname or "\\" in text or not re.fullmatch(r"[0-9a-z.:_-]+", parts.hostname):
            raise ValueError(f"the URL names no host: write {cls.allowed}")
        return cls(text)

    @property
    def host(self) -> str:
        """Host and port, without userinfo."""
        return self.text.split("://", 1)[1].split("/", 1)[0].rpartition("@")[2].lower()

    @property
    def hostname(self) -> str:
        """The host alone, lower case."""
        return urlsplit(self.text).hostname or ""

    @property
    def scheme(self) -> str:
        return self.text.split(":", 1)[0]

    @property
    def shown(self) -> str:
        """The URL without userinfo."""
        scheme, rest = self.text.split("://", 1)
        authority, slash, path = rest.partition("/")
        return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Url({self.shown})"


def decode_scalar(kind: type, value: object) -> object:
    """msgspec's `dec_hook`. Raises ValueError with what is allowed."""
    if issubclass(kind, Scalar):
        if not isinstance(value, str):
            raise ValueError(f"expected text, got {type(value).__name__}: write {kind.allowed}")  # noqa: TRY004  # msgspec wants it
        return kind.parse(value)
    raise NotImplementedError(kind)


def encode_scalar(value: object) -> object:
    """msgspec's `enc_hook`: what `decode_scalar` reads; userinfo included, so for digests only."""
    if isinstance(value, Url):
        return value.text
    if isinstance(value, Scalar):
        return str(value)
    raise NotImplementedError(type(value))


def describe_scalar(kind: type) -> dict[str, Any]:
    """msgspec's `schema_hook`: the JSON Schema of a scalar."""
    if issubclass(kind, Scalar):
        return {"type": "string", "pattern": kind.pattern, "description": kind.allowed}
    raise NotImplementedError(kind)


def digest(*parts: str | msgspec.Struct) -> str:
    """A sha256 over all parts, each with its length before it, so that no two lists of parts are alike."""
    summary = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else _canonical(part)
        summary.update(len(data).to_bytes(8, "big") + data)
    return summary.hexdigest()


def _canonical(struct: msgspec.Struct) -> bytes:
    return msgspec.json.encode(_whole(struct), order="sorted")


def _whole(value: object) -> object:
    """With every default in it, or a default that is written out would be another setting than one that is not."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__
        named = {field.encode_name: _whole(getattr(value, field.name)) for field in fields(value)}
        return named | ({tag.tag_field: tag.tag} if tag.tag_field else {})
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(inner) for inner in value]
    return encode_scalar(value) if isinstance(value, Scalar) else value


def convert(data: object, kind: Any) -> Any:
    """Plain data into settings. Raises msgspec.ValidationError on the first thing wrong."""
    return msgspec.convert(data, kind, dec_hook=decode_scalar)
