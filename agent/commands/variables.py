"""Environment variables as a shell, a dotenv file or a pod's manifest takes them."""

import json
import shlex
from collections.abc import Callable, Mapping

Variables = Mapping[str, str]


def _shell(variables: Variables) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _dotenv(variables: Variables) -> str:
    return "\n".join(
        f"{name}={value if value.replace('/', '').replace('.', '').replace('-', '').isalnum() else json.dumps(value)}"
        for name, value in variables.items()
    )


def _yaml(variables: Variables) -> str:
    return "\n".join(f"- {{name: {name}, value: {json.dumps(value)}}}" for name, value in variables.items())


FORMATS: Mapping[str, Callable[[Variables], str]] = {"shell": _shell, "dotenv": _dotenv, "yaml": _yaml}
"""How `--format` writes them; yaml is the list under a container's `env`."""
