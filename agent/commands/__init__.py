"""One file for each kind of command; each function returns the exit status."""

OK, NOT_ALL, UNUSABLE, NO_AGENT = 0, 3, 2, 4
"""Success; an identity is not in the wanted state; bad configuration or usage; no agent answers."""
