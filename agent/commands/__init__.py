"""One file for each kind of command; the exit status is what each function returns."""

OK, NOT_ALL, UNUSABLE, NO_AGENT = 0, 3, 2, 4
"""Done; some identity is not as it should be; bad configuration or usage; no agent answers."""
