"""Redline: an inference engine for language models on CPUs.

>>> import redline
>>> engine = redline.Engine("demo")
>>> scores = engine.score("The king is ", ["old.", "young."], label_token_ids=[5, 9])
"""

from . import offline
from .engine import Engine, Piece, Tokenizer
from .errors import LoadError, RedlineError, RequestError, RequestTimeout

__all__ = [
    "Engine",
    "LoadError",
    "Piece",
    "RedlineError",
    "RequestError",
    "RequestTimeout",
    "Tokenizer",
    "offline",
]
