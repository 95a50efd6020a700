"""Environment variables as a shell, a dotenv file or a pod's manifest takes them. Raise ConfigError where it cannot."""

import json
import re
import shlex
from collections.abc import Callable, Mapping

from agent.envvars import AuthorizationValue, EnvVars, Variable
from agent.errors import ConfigError

PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)


def _shell(variables: EnvVars) -> str:
    lines = [f"unset {' '.join(variables.unset)}"] if variables.unset else []
    for name, value in variables.values.items():
        lines.append(f"export {name}={_word(value)}")
    lines += [f'export {name}="${{{name}:+${name},}}{addition}"' for name, addition in variables.additions.items()]
    return "\n".join(lines)


def _word(value: str | Variable | AuthorizationValue) -> str:
    """One word for a shell, which puts in what is not written out."""
    match value:
        case Variable():
            return f'"${value.name}"'
        case AuthorizationValue(authorization=held):
            inner = f'"${held.name}"' if isinstance(held, Variable) else f'"$(cat {shlex.quote(held)})"'
            return "".join((value.before and shlex.quote(value.before), inner, value.after and shlex.quote(value.after)))
        case _:
            return shlex.quote(value)


def _variable(value: AuthorizationValue, form: str) -> str:
    """Name of the variable that holds the authorization. Raises ConfigError where a file does: only a shell can read one."""
    if isinstance(value.authorization, Variable):
        return value.authorization.name
    raise ConfigError(
        f"{form} cannot say what a file holds, and this dialect's SDKs read no file",
        remedy="set serve.authorization: ${WI_AUTHORIZATION}, or use --format shell",
    )


def _dotenv(variables: EnvVars) -> str:
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        if isinstance(value, AuthorizationValue):
            text = f'"{value.before}${{{_variable(value, "dotenv")}}}{value.after}"'  # a URL's parts, which need no quoting
        else:
            text = f'"${{{value.name}}}"' if isinstance(value, Variable) else value if PLAIN.fullmatch(value) else _quoted(value)
        lines.append(f"{name}={text}")
    return "\n".join(lines)


def _quoted(value: str) -> str:
    """In single quotes, where readers expand nothing."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _yaml(variables: EnvVars) -> str:
    """A container's `env`; kubelet fills in `$(NAME)` from the variables above it, and takes `$$` for `$`."""
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        if isinstance(value, AuthorizationValue):
            text = f"{value.before}$({_variable(value, 'yaml')}){value.after}"
        else:
            text = f"$({value.name})" if isinstance(value, Variable) else value.replace("$", "$$")
        lines.append(f"- {{name: {name}, value: {json.dumps(text)}}}")
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[EnvVars], str]] = {"shell": _shell, "dotenv": _dotenv, "yaml": _yaml}
