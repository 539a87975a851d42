"""A client of HTTP/1.1 on asyncio that keeps what it saw: complete answers, cut ones, and when their bytes came."""

import asyncio
import dataclasses
import json
import time

# Longest time that anything may take, in seconds.
PATIENCE = 120


@dataclasses.dataclass
class Answer:
    """What came back. `status` 0: no byte of an answer."""

    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    refused: bool = False
    seconds: float = 0.0

    def streamed(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def ended(self):
        """Whether the answer has its end: the whole body and, if it is a stream, its last event."""
        return self.complete and (not self.streamed() or has_last_event(self.body))

    def good(self):
        """Whether the answer is what was asked for."""
        return self.status == 200 and self.ended() and not (self.streamed() and has_error(self.body))


def has_last_event(body):
    """Whether a stream has its last event: `[DONE]`, the end of a response, or an error."""
    return any(end in body for end in (b"data: [DONE]", b"event: response.completed", b"event: response.incomplete")) or has_error(body)


def has_error(body):
    return b'data: {"error":' in body or b"event: response.failed" in body


def encoded(path, body, headers=()):
    """The bytes of a POST request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Connection:
    """One connection. It is opened when it is first used and opened again after it was closed."""

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def send(self, request):
        """Sends the bytes of a request and reads its answer. Never raises: what is missing is missing in the answer."""
        answer = Answer()
        begin = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                if self.reader is not None and self.reader.at_eof():
                    # The server has closed it because it was idle.
                    self.close()
                if self.writer is None:
                    try:
                        await self.open()
                    except OSError:
                        answer.refused = True
                        raise
                self.writer.write(request)
                await self.writer.drain()
                await self.read(answer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            self.close()
        answer.seconds = time.perf_counter() - begin
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def post(self, path, body):
        return await self.send(encoded(path, body))

    async def read(self, answer):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.status = int(head[0].split()[1])
        for line in filter(None, head[1:]):
            name, _, value = line.partition(":")
            answer.headers[name.lower()] = value.strip()
        if "content-length" in answer.headers:
            answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
        elif answer.headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                answer.body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        answer.complete = True


async def get(port, path):
    """The answer to a GET request on a connection of its own."""
    connection = Connection(port)
    try:
        return await connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    finally:
        connection.close()


async def asked(port, requests, connections):
    """The answers to all requests, in their order, from so many connections that each ask one after the other."""
    answers = [None] * len(requests)
    left = iter(range(len(requests)))

    async def one():
        connection = Connection(port)
        for index in left:
            answers[index] = await connection.send(requests[index])
        connection.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return answers
