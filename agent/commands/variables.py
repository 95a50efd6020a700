"""Environment variables as a shell, a dotenv file or a pod's manifest takes them."""

import json
import re
import shlex
from collections.abc import Callable, Mapping

from agent.variables import Variable, Variables

PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)


def _shell(variables: Variables) -> str:
    lines = [f"unset {' '.join(variables.unset)}"] if variables.unset else []
    for name, value in variables.values.items():
        text = f'"${value.name}"' if isinstance(value, Variable) else shlex.quote(value)
        lines.append(f"export {name}={text}")
    lines += [f'export {name}="${{{name}:+${name},}}{addition}"' for name, addition in variables.additions.items()]
    return "\n".join(lines)


def _dotenv(variables: Variables) -> str:
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        text = f'"${{{value.name}}}"' if isinstance(value, Variable) else value if PLAIN.fullmatch(value) else _quoted(value)
        lines.append(f"{name}={text}")
    return "\n".join(lines)


def _quoted(value: str) -> str:
    """In single quotes, where readers expand nothing."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _yaml(variables: Variables) -> str:
    """A container's `env`; kubelet fills in `$(NAME)` from the variables above it, and takes `$$` for `$`."""
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        text = f"$({value.name})" if isinstance(value, Variable) else value.replace("$", "$$")
        lines.append(f"- {{name: {name}, value: {json.dumps(text)}}}")
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[Variables], str]] = {"shell": _shell, "dotenv": _dotenv, "yaml": _yaml}
