"""Clients that leave at random moments of every kind of request: the idle server holds no more than before."""

import asyncio
import random
import socket
import struct

import client
import work
from comparison import compare, references
from server import Server

# Where a client leaves.
MOMENTS = ["connected", "in the head", "in the body", "sent", "while it waits", "in the answer"]


async def leave(port, rng, request):
    """Sends a request, or a part of it, and leaves at a random moment, half of the time with a reset."""
    sock = socket.socket()
    sock.setblocking(False)
    if rng.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    loop = asyncio.get_running_loop()
    moment = rng.choice(MOMENTS)
    head = request.index(b"\r\n\r\n") + 4
    parts = {"connected": 0, "in the head": rng.randrange(1, head), "in the body": rng.randrange(head, len(request))}
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, request[: parts.get(moment, len(request))])
        if moment == "in the answer":
            await asyncio.wait_for(loop.sock_recv(sock, rng.randint(1, 2000)), client.PATIENCE)
        if moment in ("while it waits", "in the answer"):
            await asyncio.sleep(rng.random() * 0.05)
    finally:
        sock.close()


async def leave_all(port, rng, requests, connections):
    left = iter(requests)

    async def one():
        for request in left:
            await leave(port, rng, request)

    await asyncio.gather(*(one() for _ in range(connections)))


async def held(server):
    """What the server holds. Its own connection for this question is not counted."""
    metrics = await server.metrics()
    return {
        "pages in use": int(metrics["redline_kv_pages_used"]),
        "sequences": int(metrics["redline_sequences_running"]),
        "requests": int(metrics["redline_requests_waiting"] + metrics["redline_requests_running"]),
        "places of the queue": int(metrics["redline_queue_places_used"]),
        "connections": int(metrics["redline_http_connections"]) - 1,
        "bytes of bodies": int(metrics["redline_http_body_reserved_bytes"]),
        "open files": server.descriptors(),
        "threads": server.status("Threads"),
    }


async def settled(server, wanted=None):
    """What the idle server holds after 12 s, in which idle threads end. If something is wanted: as soon as it is that, within 30 s."""
    for _ in range(60 if wanted else 24):
        await asyncio.sleep(0.5)
        now = await held(server)
        if now == wanted:
            break
    return now


async def run(setting, report):
    count = 200 if setting.quick else 1000
    rng = random.Random(setting.seed)
    requests = work.mixed(count // 2, setting.seed) + [work.long_generation(rng) for _ in range(count - count // 2)]
    rng.shuffle(requests)
    probe = work.mixed(64, setting.seed + 1)
    # Without a prefix cache, an idle server has no page in use.
    with Server(setting, "--prefix-cache", "off") as server:
        expected = references(report, await client.asked(server.port, probe, 1))
        await client.asked(server.port, requests[:64], 32)
        before = await settled(server)
        await leave_all(server.port, rng, requests, 32)
        after = await settled(server, before)
        metrics = await server.metrics()
        report.measured("disconnects", count)
        report.at_least("requests cancelled by them", int(metrics['redline_engine_requests_total{end="cancelled"}']), count // 20)
        report.equal("requests that failed inside", int(metrics['redline_engine_requests_total{end="failed"}']), 0)
        report.equal("pages in use before", before["pages in use"], 0)
        for name in before:
            report.equal(f"{name} after", after[name], before[name])
        answers = await client.asked(server.port, probe, 8)
        compare(report, "answers afterwards that differ", expected, answers)
        report.equal("exit code", server.stop(), 0)
