"""How much of the machine other processes take."""

import os
import time


def cores(seconds):
    """The cores that are busy while this process waits for so long."""
    begin = busy_ticks()
    time.sleep(seconds)
    return (busy_ticks() - begin) / os.sysconf("SC_CLK_TCK") / seconds


def busy_ticks():
    """Ticks of all cores so far in which they were neither idle nor waiting for a disk."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4]
