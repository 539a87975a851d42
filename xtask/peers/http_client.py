"""A small HTTP client: one connection that stays open, and many at once that read streams.

It reads only what the servers here send, and parses nothing before an answer is complete.
"""

import asyncio
import contextlib
import http.client
import json
import time
from urllib.parse import urlsplit

HEADERS = {"Content-Type": "application/json"}


class Connection:
    """One request after the other."""

    def __init__(self, url, timeout=600):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        self._connection.connect()

    def get(self, path):
        """The text of an answer, and its seconds."""
        return self._exchange("GET", path, None)

    def post(self, path, body):
        """The JSON of an answer, and its seconds. The body is encoded before."""
        text, seconds = self._exchange("POST", path, json.dumps(body).encode())
        return json.loads(text), seconds

    def _exchange(self, method, path, body):
        start = time.perf_counter()
        self._connection.request(method, path, body, HEADERS)
        answer = self._connection.getresponse()
        data = answer.read()
        seconds = time.perf_counter() - start
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: status {answer.status}: {data[:400].decode(errors='replace')}")
        return data.decode(), seconds

    def close(self):
        self._connection.close()


def post(url, path, body):
    """As `Connection.post`, on a connection of its own, which is made before the time begins: servers close those that wait."""
    with contextlib.closing(Connection(url)) as connection:
        return connection.post(path, body)


def stream_all(url, path, bodies):
    """Sends every body at once, each on a connection of its own; the number of events of each answer."""
    return asyncio.run(_stream_all(urlsplit(url), path, bodies))


async def _stream_all(url, path, bodies):
    return await asyncio.gather(*(_stream(url, path, body) for body in bodies))


async def _stream(url, path, body):
    data = json.dumps(body | {"stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    pieces = []
    writer.write(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    while piece := await reader.read(65536):
        pieces.append(piece)
        if b"[DONE]" in piece:
            break
    writer.close()
    whole = b"".join(pieces)
    if b"data: [DONE]" not in whole:
        raise RuntimeError(f"POST {path}: no complete stream: {whole[:400].decode(errors='replace')}")
    return whole.count(b"data: ") - 1
