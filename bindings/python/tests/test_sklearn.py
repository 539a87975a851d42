"""Estimators in pipelines of scikit-learn. Skipped where it is not installed."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from redline.sklearn import Classifier, Embedder  # noqa: E402

TEXTS = ["And the king said", "The ship sank", "A queen was crowned", "The wind filled the sails"]
CLASSES = ["king", "ship", "king", "ship"]


def test_a_classifier_gives_the_probabilities_of_the_engine(engine):
    model = Classifier("demo", engine={"threads": 1}, request={"template": "{text}. This is about the"}).fit(TEXTS, CLASSES)
    want = engine.classify(TEXTS, ["king", "ship"], template="{text}. This is about the")
    assert model.predict_proba(TEXTS).tolist() == [one["probabilities"] for one in want]
    assert model.predict(TEXTS).tolist() == [one["class"] for one in want]
    assert 0 <= model.score(TEXTS, CLASSES) <= 1
    for copy in (clone(model).fit(TEXTS, CLASSES), pickle.loads(pickle.dumps(model))):
        assert copy.predict(TEXTS).tolist() == model.predict(TEXTS).tolist()
    assert model.predict_proba([]).shape == (0, 2)


def test_vectors_go_into_a_classifier_that_learns(engine):
    embedder = Embedder("demo", request={"pooling": "mean"})
    assert np.array_equal(embedder.fit_transform(TEXTS), engine.embed(TEXTS, pooling="mean"))
    pipeline = make_pipeline(embedder, LogisticRegression()).fit(TEXTS, CLASSES)
    assert pipeline.predict(TEXTS).tolist() == CLASSES
