"""Text that a terminal may be given: some of what the agent repeats was written by a token's issuer, a server or a tenant."""


def plain(text: str) -> str:
    """In one line, without anything that could steer a terminal: no control character, and none that turns the writing round."""
    return "".join(filter(str.isprintable, text))


def lines(text: str) -> str:
    """As `plain`, where the line breaks are the agent's own."""
    return "\n".join(map(plain, text.split("\n")))
