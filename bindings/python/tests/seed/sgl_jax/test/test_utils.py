"""The base class of the seed's tests."""

import unittest


class CustomTestCase(unittest.TestCase):
    """A test that names itself in failures."""

    longMessage = True
