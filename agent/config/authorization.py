"""`serve.authorization`: the text that clients of the metadata endpoint send, or `${NAME}` for an environment variable."""

import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
MIN_CHARACTERS = 16
"""A shorter authorization can be guessed."""


def variable(text: str) -> str | None:
    """Return the environment variable that `${NAME}` names; None for any other text."""
    found = VARIABLE.fullmatch(text)
    return found[1] if found else None


def authorization(text: str, environ: Mapping[str, str]) -> str:
    """Return the authorization that clients send, with `${NAME}` resolved.

    Raises ValueError, without the authorization in it, if that cannot be the value of an HTTP header or can be guessed.
    """
    name = variable(text)
    if name and not environ.get(name):
        raise ValueError(f"the environment variable {name} is empty or not set: set it")
    if not name and "${" in text:
        raise ValueError("${NAME} must be the whole text: remove the characters around it")
    found = environ[name] if name else text
    subject = f"the value of {name}" if name else "the text"
    if len(found) < MIN_CHARACTERS:
        raise ValueError(f"{subject} is too short: use at least {MIN_CHARACTERS} characters")
    if not re.fullmatch(r"[\x21-\x7e]+", found, re.ASCII):
        raise ValueError(f"{subject} holds other characters than printable ASCII: remove spaces and line breaks")
    return found
