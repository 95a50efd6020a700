"""What a metadata server says of an identity, as far as its settings tell."""

from collections.abc import Mapping

from agent.providers.gcp.settings import GcpSettings


def facts(settings: GcpSettings, project: str) -> Mapping[str, str]:
    """By name. `project`: id or number; the number is the pool's where the project is not that of a service account elsewhere."""
    pool = (settings.workload_identity_provider or "//").split("/")[1]
    number = project if project.isdigit() else pool
    found = {
        "project-id": project,
        "project-number": number,
        "universe-domain": settings.universe_domain,
        "account": settings.service_account or "",
        "email": settings.service_account or (f"{project}.svc.id.goog" if project else ""),
        "scopes": " ".join(settings.scopes),
        "scopes-allowed": " ".join(sorted(settings.run_time_scopes or ())),
    }
    return {name: value for name, value in found.items() if value}
