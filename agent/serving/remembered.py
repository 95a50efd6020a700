"""What was worked out for a text that clients send, kept for the next who sends the same."""

from typing import TypeVar

Meaning = TypeVar("Meaning")


class Remembered(dict[str, Meaning]):
    """So many at most, and none for a long text, for clients choose the texts. When it is full it begins anew."""

    def __init__(self, most: int, longest: int) -> None:
        """`longest`: characters of a text."""
        super().__init__()
        self._most = most
        self._longest = longest

    def keep(self, text: str, meaning: Meaning) -> None:
        """Its meaning, unless it is too long."""
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = meaning
