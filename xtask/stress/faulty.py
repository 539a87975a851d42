"""A proxy in front of `redline serve` that adds one fault, for testing the scenarios: `faulty.py FAULT SEED REDLINE serve ARGS`.

It takes the place of the binary: it says where it listens, passes SIGTERM on, and ends with the code of the server behind it.
"""

import asyncio
import ctypes
import os
import random
import re
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
NUMBER_OR_WORD = re.compile(rb'(0\.\d|"(?:text|delta|content)":"[^"]*[a-z])')


class Fault:
    """A fault changes what goes to clients, or what the proxy does. This one does nothing."""

    # Seconds that an answer is held back while so many connections are open.
    crowd, delay = 1 << 30, 0.0
    # Whether the server is told when a client leaves.
    tells_leaving = True

    def answer(self, data):
        """What goes to the client in place of this piece of an answer."""
        return data

    def held(self, data):
        """Seconds for which this piece of an answer is held back."""
        return 0.0

    def gone(self, writer):
        """A client has left."""

    def start(self):
        """The proxy begins."""

    def terminate(self, server):
        server.send_signal(signal.SIGTERM)


class Digits(Fault):
    """Sometimes one byte of an answer is another."""

    def answer(self, data):
        found = NUMBER_OR_WORD.search(data) if random.random() < 0.1 else None
        if not found:
            return data
        place = found.end() - 1
        other = (b"7" if data[place : place + 1] != b"7" else b"3") if data[place : place + 1].isdigit() else b"Q"
        return data[:place] + other + data[place + 1 :]


class SlowRefusals(Fault):
    def held(self, data):
        return 0.08 if data.startswith(b"HTTP/1.1 429") and random.random() < 0.05 else 0.0


class NoRetryAfter(Fault):
    def answer(self, data):
        return data.replace(b"retry-after:", b"retry-never:")


class Memory(Fault):
    """Every answer leaves something behind."""

    def __init__(self):
        self.kept = []

    def answer(self, data):
        self.kept.append(bytearray(b"x" * 16384))
        return data


class FewerAnswers(Fault):
    """A refusal costs the server as much time as an answer does: the others wait."""

    def held(self, data):
        if data.startswith(b"HTTP/1.1 429"):
            end = asyncio.get_running_loop().time() + 0.002
            while asyncio.get_running_loop().time() < end:
                pass
        return 0.0


class Crowded(Fault):
    crowd, delay = 600, 0.02


class Files(Fault):
    """Some files of connections stay open."""

    def gone(self, writer):
        if random.random() < 0.1 and (sock := writer.get_extra_info("socket")) is not None and sock.fileno() >= 0:
            os.dup(sock.fileno())


class Deaf(Fault):
    tells_leaving = False


class Cut(Fault):
    def terminate(self, server):
        server.kill()


class NoStart(Fault):
    """A server with stored plans sometimes does not start."""

    def start(self):
        plans = sys.argv[sys.argv.index("--plan-cache") + 1]
        if os.path.isdir(plans) and os.listdir(plans) and random.random() < 0.5:
            sys.exit("the start failed")


class Silent(Fault):
    def start(self):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


FAULTS = {
    "none": Fault,
    "digits": Digits,
    "slow-refusals": SlowRefusals,
    "no-retry-after": NoRetryAfter,
    "memory": Memory,
    "fewer-answers": FewerAnswers,
    "crowded": Crowded,
    "files": Files,
    "deaf": Deaf,
    "cut": Cut,
    "no-start": NoStart,
    "silent": Silent,
}


class Proxy:
    def __init__(self, fault, port):
        self.fault = fault
        self.port = port
        self.open = 0

    async def serve(self, reader, writer):
        """Passes the bytes of one connection both ways."""
        self.open += 1
        behind = None
        try:
            from_server, behind = await asyncio.open_connection("127.0.0.1", self.port)
            up = asyncio.create_task(self.up(reader, behind))
            await self.down(from_server, writer)
            up.cancel()
        except OSError:
            pass
        finally:
            self.open -= 1
            self.fault.gone(writer)
            writer.close()
            if behind is not None:
                behind.close()

    async def up(self, reader, behind):
        try:
            while data := await reader.read(65536):
                behind.write(data)
        except OSError:
            pass
        if self.fault.tells_leaving:
            behind.transport.abort()

    async def down(self, from_server, writer):
        while data := await from_server.read(65536):
            seconds = self.fault.held(data) + (self.fault.delay if self.open > self.fault.crowd else 0)
            if seconds:
                await asyncio.sleep(seconds)
            writer.write(self.fault.answer(data))
            await writer.drain()


def dies_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def main(fault, command):
    fault.start()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=dies_with_parent)
    line = server.stdout.readline().decode()
    if not line.startswith("listening on "):
        print(line, end="", flush=True)
        return server.wait()
    proxy = Proxy(fault, int(line.rpartition(":")[2]))
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=4096)

    def terminate():
        listener.close()
        fault.terminate(server)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    print(f"listening on http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    while server.poll() is None:
        await asyncio.sleep(0.01)
    # The last bytes are on their way.
    while proxy.open:
        await asyncio.sleep(0.01)
    return server.returncode


if __name__ == "__main__":
    random.seed(sys.argv[2])
    code = asyncio.run(main(FAULTS[sys.argv[1]](), sys.argv[3:]))
    sys.exit(code if code >= 0 else 1)
