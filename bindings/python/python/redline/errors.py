"""What goes wrong. Every error says a fact, with numbers and place, and most say what can be done about it."""

from __future__ import annotations

__all__ = [
    "LoadError",
    "RedlineError",
    "RequestError",
    "RequestTimeout",
]


class RedlineError(Exception):
    """An error of Redline.

    Attributes:
        fact: what is wrong.
        hint: what can be done about it, or ``None``.
    """

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact, hint)
        self.fact = fact
        self.hint = hint

    def __str__(self) -> str:
        return self.fact if self.hint is None else f"{self.fact}\nhint: {self.hint}"


class LoadError(RedlineError):
    """The model cannot be loaded: an unknown name, a damaged file, an option that means nothing, too little memory."""


class RequestError(RedlineError, ValueError):
    """The request is invalid. Nothing was computed."""


class RequestTimeout(RedlineError):
    """The request was not finished within its ``timeout_s``."""

