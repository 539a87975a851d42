"""Ten times as many requests as the server can answer: it refuses the excess at once and answers as many as before."""

import asyncio
import collections
import gc
import random
import resource
import time

import client
import work
from report import percentile
from server import Server

QUEUE = 64
TIMES = 10


def job(rng):
    """A request of some ten milliseconds: a long prompt of its own, then many tokens."""
    body = {"prompt": work.text(rng, 200), "max_tokens": 48, "ignore_eos": True}
    return client.encoded("/v1/completions", body)


def own_cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Usage:
    """Processor time of the client and of the server between two moments."""

    def __init__(self, server):
        self.server = server
        self.begin = time.perf_counter(), own_cpu_seconds(), server.cpu_seconds()

    def end(self):
        """Seconds that passed, and the cores that the client and the server took."""
        wall, own, server = self.begin
        seconds = time.perf_counter() - wall
        return seconds, (own_cpu_seconds() - own) / seconds, (self.server.cpu_seconds() - server) / seconds


async def closed(server, rng, connections, seconds):
    """Answers per second with so many connections that each ask one after the other. Unfinished requests do not count."""
    end = time.perf_counter() + seconds
    done = 0

    async def one():
        nonlocal done
        connection = client.Connection(server.port)
        while time.perf_counter() < end:
            answer = await connection.send(job(rng))
            done += answer.good() and time.perf_counter() <= end
        connection.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return done / seconds


class Arrivals:
    """Requests that arrive at a rate. Each takes an idle connection or opens one, so that none waits for another."""

    def __init__(self, server, rng):
        self.server = server
        self.rng = rng
        self.idle = []
        # For each answer: seconds since its request was due, when it ended, and the answer.
        self.answers = []
        self.late = []
        self.memory = []

    async def one(self, due, request):
        connection = self.idle.pop() if self.idle else client.Connection(self.server.port)
        answer = await connection.send(request)
        end = time.perf_counter()
        self.answers.append((end - due, end, answer))
        if connection.writer is not None:
            self.idle.append(connection)

    async def offer(self, rate, seconds):
        """Offers requests at Poisson times, and notes how late each was sent."""
        # Collecting garbage among all answers would make the client late.
        gc.collect()
        gc.disable()
        try:
            await self.send(rate, seconds)
        finally:
            gc.enable()
        for connection in self.idle:
            connection.close()

    async def send(self, rate, seconds):
        """Sends the requests, and waits for their answers."""
        self.begin = due = time.perf_counter()
        running = set()
        watch = asyncio.create_task(self.watch())
        while due < self.begin + seconds:
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            self.late.append(time.perf_counter() - due)
            task = asyncio.create_task(self.one(due, job(self.rng)))
            running.add(task)
            task.add_done_callback(running.discard)
            due += self.rng.expovariate(rate)
        self.end = time.perf_counter()
        watch.cancel()
        await asyncio.gather(*running)

    async def watch(self):
        """Notes the memory of the server twice a second."""
        while True:
            self.memory.append(self.server.resident_mib())
            await asyncio.sleep(0.5)


def judge(report, arrivals, peak):
    """The figures of an overload."""
    answers = [answer for _, _, answer in arrivals.answers]
    seconds = arrivals.end - arrivals.begin
    refused = [(taken, answer) for taken, _, answer in arrivals.answers if answer.status in (429, 503)]
    good = [moment for _, moment, answer in arrivals.answers if answer.good() and moment <= arrivals.end]
    times = [taken * 1000 for taken, _ in refused]
    goodput = len(good) / seconds
    report.measured("offered", len(answers), "requests")
    report.at_least("offered / peak", len(answers) / seconds / peak, 0.9 * TIMES)
    report.at_least("refused with 429 or 503", len(refused), 1, "requests")
    report.equal("refused without Retry-After", sum("retry-after" not in answer.headers for _, answer in refused), 0)
    others = collections.Counter(a.status for a in answers if a.status not in (429, 503) and not a.good())
    report.equal("neither answered nor refused", others.total(), 0)
    if others:
        report.note(f"statuses of these (0: no answer): {', '.join(f'{status} x{count}' for status, count in others.items())}")
    for name, share in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1)]:
        report.at_most(f"time of a refusal, {name}", percentile(times, share), 50, "ms")
    report.measured("refusals above 50 ms", sum(t > 50 for t in times))
    report.measured("goodput", goodput, "/s")
    report.at_least("goodput / peak", goodput / peak, 0.9)
    report.measured("time of an answer, p99", percentile([taken for taken, _, a in arrivals.answers if a.good()], 0.99), "s")
    half = len(arrivals.memory) // 2
    first, last = max(arrivals.memory[:half]), max(arrivals.memory[half:])
    report.measured("resident memory, first half, max", first, "MiB")
    report.at_most("resident memory, last half, max", last, first * 1.02 + 2, "MiB")
    return goodput


async def run(setting, report):
    seconds = 8 if setting.quick else 60
    rng = random.Random(setting.seed)
    with Server(setting, "--queue", QUEUE, "--threads", setting.threads) as server:
        await closed(server, rng, 16, 2)
        peaks = {}
        for connections in [16, 32, QUEUE]:
            usage = Usage(server)
            peaks[connections] = await closed(server, rng, connections, 3 if setting.quick else 10)
            _, own, theirs = usage.end()
            report.measured(f"goodput of {connections} connections", peaks[connections], "/s")
        peak = max(peaks.values())
        report.note(f"closed loop with {QUEUE} connections: the client took {own:.2f} cores, the server {theirs:.2f}")
        arrivals = Arrivals(server, rng)
        usage = Usage(server)
        await arrivals.offer(TIMES * peak, seconds)
        wall, own, theirs = usage.end()
        goodput = judge(report, arrivals, peak)
        report.measured("arrival sent late, p99", percentile(arrivals.late, 0.99) * 1000, "ms")
        report.measured("arrival sent late, max", max(arrivals.late) * 1000, "ms")
        report.note(f"overload: the client took {own:.2f} of {setting.cores} cores, the server {theirs:.2f} with {setting.threads} threads for passes")
        free = setting.cores - own
        if goodput < 0.9 * peak and free > 0:
            report.note(f"with all cores for the server, this goodput could be up to {goodput * setting.cores / free / peak:.2f} of the peak")
        report.note("times count from the moment a request was due, so they contain the delays of the client: what is sent late counts against the server")
        report.equal("exit code", server.stop(), 0)
