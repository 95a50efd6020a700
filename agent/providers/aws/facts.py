"""What instance metadata says of a session's role."""

from collections.abc import Mapping


def facts(role_arn: str, region: str) -> Mapping[str, str]:
    """By name. A role's path is no part of its name. Without a role there is only the region."""
    if not role_arn:
        return {"region": region}
    return {"role": role_arn.rpartition("/")[2], "account": role_arn.split(":")[4], "partition": role_arn.split(":")[1], "region": region}
