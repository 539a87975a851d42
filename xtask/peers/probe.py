"""The machine's read bandwidth, by `memchr` over memory that does not hold the byte it looks for.

memchr of glibc is vectorised and releases Python's lock, so threads read side by side. Each thread is pinned to a CPU
of its own and reads its own contiguous half of the buffer.
"""

import ctypes
import mmap
import os
import statistics
import threading
import time

BYTES = 512 << 20
PASSES = 5

_libc = ctypes.CDLL(None)
_libc.memchr.restype = ctypes.c_void_p
_libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


class Probe:
    """Reads a buffer far larger than the caches."""

    def __init__(self):
        self._map = mmap.mmap(-1, BYTES)
        self._map.madvise(mmap.MADV_HUGEPAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        ctypes.memset(self._address, 1, BYTES)
        self._cpus = sorted(os.sched_getaffinity(0))

    def read_bandwidth(self, threads):
        """Bytes per second with that many threads: the median of PASSES passes."""
        part = BYTES // threads
        barrier = threading.Barrier(threads)
        spans = [[] for _ in range(threads)]

        def read(index):
            os.sched_setaffinity(0, {self._cpus[index % len(self._cpus)]})
            for _ in range(PASSES):
                barrier.wait()
                start = time.perf_counter()
                _libc.memchr(self._address + index * part, 2, part)
                spans[index].append((start, time.perf_counter()))

        team = [threading.Thread(target=read, args=(index,)) for index in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        seconds = [max(end for _, end in one) - min(start for start, _ in one) for one in zip(*spans)]
        return threads * part / statistics.median(seconds)


if __name__ == "__main__":
    probe = Probe()
    for threads in range(1, len(os.sched_getaffinity(0)) + 1):
        print(f"{threads} threads: {probe.read_bandwidth(threads) / 1e9:.1f} GB/s")
