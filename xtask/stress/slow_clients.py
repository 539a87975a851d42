"""A thousand idle connections and 200 slow clients: the others wait no longer than before."""

import asyncio
import multiprocessing
import random
import socket
import statistics
import time

import client
import work
from report import percentile
from server import Server


async def dribble(port, request, at_once):
    """Sends the beginning of a request at once and the rest one byte per second. Returns when the server has closed the connection."""
    connection = client.Connection(port)
    await connection.open()
    connection.writer.write(request[:at_once])
    closed = asyncio.create_task(connection.reader.read())
    for byte in request[at_once:]:
        done, _ = await asyncio.wait([closed], timeout=1)
        if done:
            break
        connection.writer.write(bytes([byte]))
    await closed
    connection.close()


async def sip(port, request):
    """Asks for a stream and reads one byte of it per second, through a small buffer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, request)
        while await loop.sock_recv(sock, 1):
            await asyncio.sleep(1)
    finally:
        sock.close()


async def slow_client(port, rng, place, cut):
    """One slow client, which comes back when the server has closed its connection."""
    await asyncio.sleep(rng.random())
    while True:
        request = work.long_generation(rng, stream=True)
        head = request.index(b"\r\n\r\n") + 4
        try:
            match place % 3:
                case 0:
                    await dribble(port, request, 5)
                case 1:
                    await dribble(port, request, head)
                case 2:
                    await sip(port, request)
        except OSError:
            pass
        cut[place % 3] += 1
        await asyncio.sleep(1)


async def crowd(port, idle, slow, seed, pipe):
    """Opens the idle and slow connections, says so, and keeps them until it is told to end."""
    opened = []
    for _ in range(idle):
        connection = client.Connection(port)
        await connection.open()
        opened.append(connection)
    cut = [0, 0, 0]
    rng = random.Random(seed)
    tasks = [asyncio.create_task(slow_client(port, rng, place, cut)) for place in range(slow)]
    # By then each of them has sent its first request.
    await asyncio.sleep(4)
    pipe.send("ready")
    while not pipe.poll():
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    still = sum(not connection.reader.at_eof() for connection in opened)
    pipe.send((still, cut))


def crowd_process(*arguments):
    asyncio.run(crowd(*arguments))


async def normal(port, rng, connections, seconds):
    """The seconds of requests of ordinary clients: each of the connections asks one after the other."""
    end = time.perf_counter() + seconds
    times, failed = [], 0

    async def one():
        nonlocal failed
        connection = client.Connection(port)
        while time.perf_counter() < end:
            body = {"prompt": work.text(rng, 30), "max_tokens": 16, "ignore_eos": True}
            answer = await connection.send(client.encoded("/v1/completions", body))
            failed += not answer.good()
            times.append(answer.seconds)
        connection.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return times, failed


def received(pipe):
    """What the crowd says next."""
    if not pipe.poll(client.PATIENCE):
        raise TimeoutError(f"the crowd said nothing for {client.PATIENCE} s")
    try:
        return pipe.recv()
    except EOFError:
        raise RuntimeError("the process of the crowd ended early") from None


async def at_rest(server):
    """Waits until the engine has generated the streams of the slow readers: later these only wait to be read."""
    begin = time.perf_counter()
    while (metrics := await server.metrics())["redline_requests_waiting"] + metrics["redline_requests_running"]:
        if time.perf_counter() - begin > client.PATIENCE:
            raise TimeoutError(f"requests of slow clients still run after {client.PATIENCE} s")
        await asyncio.sleep(0.2)


async def with_crowd(server, rng, setting, seconds, idle, slow):
    """The times of ordinary clients beside the crowd, which is a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=crowd_process, args=(server.port, idle, slow, setting.seed, theirs))
    process.start()
    # Only the process holds its end now: if it dies, reading ends.
    theirs.close()
    try:
        await asyncio.to_thread(received, ours)
        await at_rest(server)
        times, failed = await normal(server.port, rng, 4, seconds)
        held = int((await server.metrics())["redline_http_connections"])
        ours.send("end")
        still, cut = await asyncio.to_thread(received, ours)
    finally:
        ours.close()
        process.join(10)
        process.kill()
    return times, failed, held, still, cut


async def run(setting, report):
    idle, slow = 1000, 200
    pairs, seconds = (1, 4) if setting.quick else (6, 15)
    rng = random.Random(setting.seed)
    p99s = {"without": [], "with": []}
    failed, connections, still = 0, [], []
    with Server(setting, "--threads", setting.threads) as server:
        await normal(server.port, rng, 4, 2)
        for pair in range(pairs):
            # A B, B A, ...: neither comes first more often.
            for arm in ["without", "with"] if pair % 2 == 0 else ["with", "without"]:
                if arm == "without":
                    times, bad = await normal(server.port, rng, 4, seconds)
                else:
                    times, bad, held, open_still, _ = await with_crowd(server, rng, setting, seconds, idle, slow)
                    connections.append(held)
                    still.append(open_still)
                failed += bad
                p99s[arm].append(percentile(times, 0.99) * 1000)
                report.measured(f"p99 {arm}, pair {pair + 1} ({len(times)} requests)", p99s[arm][-1], "ms")
        if not setting.quick:
            # Longer than the limits of heads and bodies (30 s).
            *_, cut = await with_crowd(server, rng, setting, 40, idle, slow)
            report.at_least("slow heads that the server cut off", cut[0], slow // 3)
            report.at_least("slow bodies that the server cut off", cut[1], slow // 3)
            report.measured("slow readers that the server cut off", cut[2])
        report.equal("exit code", server.stop(), 0)
    medians = {arm: statistics.median(values) for arm, values in p99s.items()}
    report.at_least("connections open beside them, least", min(connections), idle + slow // 2)
    report.measured("idle connections open at the end of a turn, least", min(still))
    report.equal("ordinary requests that failed", failed, 0)
    report.measured("median p99 without", medians["without"], "ms")
    report.measured("median p99 with", medians["with"], "ms")
    report.at_most("p99 with / without", medians["with"] / medians["without"], 1.2)
    if setting.quick:
        report.note("not done: waiting until the server cuts off slow heads and bodies, after 30 s")
    report.note("the slow clients are a process of their own on the same machine: what they take of its cores counts against the server")
