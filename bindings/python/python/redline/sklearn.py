"""Estimators of scikit-learn: a classifier that needs no training, and a transformer that makes vectors of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin

from .engine import Engine, Floats

__all__ = ["Classifier", "Embedder"]


class _Model(BaseEstimator):
    """Loads its model once, when it is first needed. Copies and pickles load their own."""

    def __init__(self, model: str, *, engine: Mapping[str, Any] | None = None, request: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self.engine = engine
        self.request = request

    def _loaded(self) -> Engine:
        key = (self.model, dict(self.engine or {}))
        held: tuple[Any, Engine] | None = self.__dict__.get("_held")
        if held is None or held[0] != key:
            held = (key, Engine(self.model, **key[1]))
            self.__dict__["_held"] = held
        return held[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_held"}


class Classifier(ClassifierMixin, _Model):
    """Gives texts the most probable of some classes, as ``redline.Engine.classify`` does.

    Args:
        model: what ``redline.Engine`` takes.
        engine: further arguments of ``redline.Engine``.
        request: options of ``redline.Engine.classify``, such as ``template`` and ``calibrate``.
    """

    def fit(self, X: Sequence[str], y: Sequence[str]) -> Classifier:
        """Takes the classes from ``y``. Nothing is trained, so the texts are not used."""
        self.classes_ = np.unique(np.asarray(y, dtype=str))
        return self

    def predict_proba(self, X: Sequence[str]) -> npt.NDArray[np.float64]:
        """The probability of each class of ``classes_``, with a row for each text."""
        results = self._loaded().classify([str(text) for text in X], self.classes_.tolist(), **(self.request or {}))
        return np.array([one["probabilities"] for one in results], dtype=float).reshape(len(results), len(self.classes_))

    def predict(self, X: Sequence[str]) -> npt.NDArray[np.str_]:
        """The most probable class of each text."""
        classes: npt.NDArray[np.str_] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return classes


class Embedder(TransformerMixin, _Model):
    """Makes a vector of each text, as ``redline.Engine.embed`` does.

    Args:
        model: what ``redline.Engine`` takes.
        engine: further arguments of ``redline.Engine``.
        request: options of ``redline.Engine.embed``, such as ``pooling`` and ``dimensions``.
    """

    def fit(self, X: Sequence[str], y: object = None) -> Embedder:
        """Does nothing: there is nothing to learn."""
        return self

    def transform(self, X: Sequence[str]) -> Floats:
        """An array of shape ``(texts, dimensions)``."""
        return self._loaded().embed([str(text) for text in X], **(self.request or {}))
