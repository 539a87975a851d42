"""Processor time of threads and processes, from /proc."""

import os


def stat(path):
    """The name of a thread or process, and its processor time in seconds."""
    name, fields = path.read_text(encoding="ascii", errors="replace").rsplit(")", maxsplit=1)
    return name.split("(", maxsplit=1)[1], sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
