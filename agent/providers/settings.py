"""The questions that the agent asks the settings of every provider, with the answers of one that has nothing to add.

Without fields, so that no provider accepts a key that it does not declare itself.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from agent.envvars import EnvVars, ServedAt
from agent.model import Paths
from agent.settings import Duration, Settings


class ProviderDefaults(Settings):
    """Settings of a provider without a cloud: the token itself is the credential."""

    principal_key: ClassVar[str] = ""
    """Key of the setting that names the principal which the workload acts as; the other keys say where."""
    credential_noun: ClassVar[str] = "an access token"
    """What an exchange returns, in messages."""

    @property
    def exchanges(self) -> bool:
        """Whether the agent exchanges the token."""
        return False

    @property
    def left_to_sdk(self) -> bool:
        """Whether the workload's SDK exchanges the token, because `exchange: false` is configured."""
        return False

    @property
    def principal(self) -> str:
        """The principal which the workload acts as in the end; empty if it acts as itself or annotations name it."""
        return ""

    @property
    def configured_principal(self) -> str:
        """Value of the setting that `principal_key` names."""
        return self.principal

    @property
    def requested_lifetime(self) -> Duration | None:
        """Lifetime that the setting `duration` asks for; None leaves it to the cloud."""
        return None

    @property
    def named_files(self) -> tuple[str, ...]:
        """Paths of the files, other than secrets, that decide whom the agent asks."""
        return ()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong between the settings: the field, and what is allowed."""
        return iter(())

    def annotations(self) -> Mapping[str, str]:
        """Return the ServiceAccount annotations that set a key, by their names; empty unless `fromServiceAccount` is set."""
        return {}

    def annotated(self, text: str) -> str:
        """Return the setting that an annotation's text means."""
        return text

    def environment(self, identity: str, paths: Paths) -> EnvVars | None:
        """Return the variables that make the cloud's SDKs use the identity's files; None if no SDK can."""
        return None

    def served(self, identity: str, at: ServedAt) -> EnvVars | None:
        """Return the variables that make the cloud's SDKs ask the endpoint in this dialect; None if no SDK can."""
        return None

    def trust_commands(self, *, issuer: str, subject: str, claims: Collection[str] = ()) -> Sequence[str]:
        """Return the shell commands that make the cloud trust tokens of this issuer and subject; empty if none are needed.

        `claims`: names of the token's claims besides the registered ones.
        """
        return ()

    def variants(self) -> Sequence[str]:
        """Return the variants that the agent keeps fresh from the start, without a client's request."""
        return ()

    def facts(self) -> Mapping[str, str]:
        """Return what the cloud's metadata dialects can say of the identity besides its credential; nothing secret."""
        return {}


class CloudDefaults(ProviderDefaults):
    """Settings that the clouds have in common. Each cloud declares them, in the order in which its documentation has them."""

    if TYPE_CHECKING:

        @property
        def from_service_account(self) -> bool:
            raise NotImplementedError

        @property
        def exchange(self) -> bool:
            raise NotImplementedError

        @property
        def ca_file(self) -> str | None:
            raise NotImplementedError

    annotation_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys of the settings by the ServiceAccount annotation that sets them, as the cloud's own webhook reads it."""

    @property
    def exchanges(self) -> bool:
        return self.exchange

    @property
    def left_to_sdk(self) -> bool:
        return not self.exchange

    @property
    def named_files(self) -> tuple[str, ...]:
        return (self.ca_file,) if self.ca_file else ()

    def annotations(self) -> Mapping[str, str]:
        return self.annotation_keys if self.from_service_account else {}
