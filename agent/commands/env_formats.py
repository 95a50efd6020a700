"""Environment variables in the syntax of a shell, a dotenv file or a pod's manifest. Each raises ConfigError if it cannot express one."""

import json
import shlex
from collections.abc import Callable, Mapping

from agent.envvars import AuthorizationValue, EnvVars, Variable, dotenv_value
from agent.errors import ConfigError


def _shell(variables: EnvVars) -> str:
    lines = [f"unset {' '.join(variables.unset)}"] if variables.unset else []
    for name, value in variables.values.items():
        lines.append(f"export {name}={_word(value)}")
    lines += [f'export {name}="${{{name}:+${name},}}{addition}"' for name, addition in variables.additions.items()]
    return "\n".join(lines)


def _word(value: str | Variable | AuthorizationValue) -> str:
    """Return one word for a shell, which fills in the values that are not written out."""
    match value:
        case Variable():
            return f'"${value.name}"'
        case AuthorizationValue(authorization=held):
            inner = f'"${held.name}"' if isinstance(held, Variable) else f'"$(cat {shlex.quote(held)})"'
            return "".join((value.before and shlex.quote(value.before), inner, value.after and shlex.quote(value.after)))
        case _:
            return shlex.quote(value)


def _variable(value: AuthorizationValue, form: str) -> str:
    """Return the name of the variable that holds the authorization. Raises ConfigError if a file does: only a shell can read one."""
    if isinstance(value.authorization, Variable):
        return value.authorization.name
    raise ConfigError(
        f"{form} cannot hold the content of a file, and SDKs of this dialect do not read one",
        remedy="set serve.authorization: ${WI_AUTHORIZATION}, or use --format shell",
    )


def _dotenv(variables: EnvVars) -> str:
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        if isinstance(value, AuthorizationValue):
            text = f'"{value.before}${{{_variable(value, "dotenv")}}}{value.after}"'  # parts of a URL, which need no quotes
        else:
            text = f'"${{{value.name}}}"' if isinstance(value, Variable) else dotenv_value(value)
        lines.append(f"{name}={text}")
    return "\n".join(lines)


def _yaml(variables: EnvVars) -> str:
    """Return a container's `env`; kubelet replaces `$(NAME)` by the variable above it, and `$$` by `$`."""
    lines = []
    for name, value in {**variables.values, **variables.additions}.items():
        if isinstance(value, AuthorizationValue):
            text = f"{value.before}$({_variable(value, 'yaml')}){value.after}"
        else:
            text = f"$({value.name})" if isinstance(value, Variable) else value.replace("$", "$$")
        lines.append(f"- {{name: {name}, value: {json.dumps(text)}}}")
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[EnvVars], str]] = {"shell": _shell, "dotenv": _dotenv, "yaml": _yaml}
