"""What an engine cannot do."""


class Unavailable(Exception):
    """An arm or a job that is left out, with the reason that the table gives."""
