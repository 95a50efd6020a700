"""The resources that make Google Cloud trust an identity: pool, provider, and IAM bindings.

https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers
https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

USER, CREATOR = "roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"
MAX_SUBJECT_BYTES = 127
"""Of `google.subject`."""
SUBJECT = "system:serviceaccount:"
"""Before namespace and name of a Kubernetes ServiceAccount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The identity that Google trusts, and the service account that it acts as."""

    provider: str
    """`projects/N/…/providers/Q`; empty in GKE, which has a pool already."""
    issuer: str
    """The token's `iss`."""
    subject: str
    audiences: Sequence[str]
    """Of the token."""
    default_audience: bool = True
    """Whether Google accepts these audiences without `--allowed-audiences`."""
    account: str = ""
    """Email of the service account; empty if the identity acts as itself."""
    delegates: Sequence[str] = ()

    @property
    def principal(self) -> str:
        """The identity, as IAM policies name it."""
        if self.provider:
            pool = self.provider.rpartition("/providers/")[0]
            return f"principal://iam.googleapis.com/{pool}/subject/{self.subject}"
        namespace, _, name = self.subject.removeprefix(SUBJECT).partition(":")
        pool = "projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/PROJECT_ID.svc.id.goog"
        return f"principal://iam.googleapis.com/{pool}/subject/ns/{namespace}/sa/{name}"

    @property
    def believer(self) -> str:
        """The provider or pool that trusts the token."""
        return self.provider or "the cluster's workload identity pool"

    def update(self, flag: str) -> str:
        """Return the command that changes the provider."""
        return f"gcloud iam workload-identity-pools providers update-oidc {self._place()} {shlex.quote(flag)}"

    def denied(self) -> str:
        """Return the remedy if IAM did not let the identity act as the service account."""
        return f"run: {self._bindings()[0]}" + (", and let each delegate act as the next" if self.delegates else "")

    def lines(self) -> list[str]:
        """Return commands for a shell with the rights to run them; the remarks between them are the shell's comments."""
        return [*(self._created() if self.provider else []), *self._allowed()]

    def _created(self) -> list[str]:
        _, project, _, _, _, pool, _, _ = self.provider.split("/")
        text = ["# once: the pool, and the issuer as its provider"]
        if not self.issuer.startswith("https://"):
            text.append(f"# {self.issuer} is not an https URL, and Google accepts no other, even if the keys are uploaded")
        text.append(f"gcloud iam workload-identity-pools create {pool} --project={project} --location=global")
        audiences = "" if self.default_audience else " " + shlex.quote(f"--allowed-audiences={','.join(self.audiences)}")
        text.append(
            f"gcloud iam workload-identity-pools providers create-oidc {self._place()}"
            f" {shlex.quote(f'--issuer-uri={self.issuer}')} --attribute-mapping=google.subject=assertion.sub{audiences}"
        )
        text.append(
            "# if Google cannot reach the issuer: wi-agent issuer export DIR, and --jwk-json-path with its key set, after each rotation"
        )
        if len(self.subject.encode()) > MAX_SUBJECT_BYTES:
            text.append(
                f"# the subject has more than the {MAX_SUBJECT_BYTES} bytes that google.subject may have: shorten it, or map a part of it"
            )
        return text

    def _allowed(self) -> list[str]:
        if self.account:
            return [f"# the permission to act as {self.account}", *self._bindings()]
        return [
            "# the permissions of the identity, for each resource; a bucket, say",
            f"gcloud storage buckets add-iam-policy-binding gs://BUCKET --role=roles/storage.objectViewer {self._member(self.principal)}",
        ]

    def _bindings(self) -> list[str]:
        """Return a command for each step from the identity to the service account."""
        steps = [*self.delegates, self.account]
        members = [self.principal, *(f"serviceAccount:{email}" for email in self.delegates)]
        roles = [USER, *(CREATOR for _ in self.delegates)]
        return [
            f"gcloud iam service-accounts add-iam-policy-binding {account} --role={role} {self._member(member)}"
            for account, role, member in zip(steps, roles, members, strict=True)
        ]

    def _member(self, principal: str) -> str:
        return shlex.quote(f"--member={principal}")

    def _place(self) -> str:
        _, project, _, _, _, pool, _, name = self.provider.split("/")
        return f"{name} --project={project} --location=global --workload-identity-pool={pool}"
