"""What the metadata dialects say of an identity beside its credential: from the provider's settings and `serve`."""

from collections.abc import Mapping

from agent import providers
from agent.config.model import Identity


def facts(identity: Identity) -> Mapping[str, str]:
    """By name; what is not known is not there."""
    found = dict(providers.facts(identity.provider))
    match identity.provider.__struct_config__.tag:
        case "aws":
            own = identity.serve.imds
            given = {"availability-zone": own.availability_zone, "v1": "allowed" if own.v1 else None}
        case "gcp":
            gce = identity.serve.gce
            given = {
                "project-id": gce.project_id,
                "project-number": gce.project_number,
                "zone": gce.zone,
                "universe-domain": gce.universe_domain,
                "cluster-name": gce.cluster_name,
                "cluster-location": gce.cluster_location,
                "email": gce.email,
            }
        case "alibaba":
            ecs = identity.serve.ecs
            given = {"zone": ecs.zone_id, "v1": "allowed" if ecs.v1 else None}
        case _:
            given = {}
    return found | {name: value for name, value in given.items() if value}
