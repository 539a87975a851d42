"""`redline serve` as a process, and what can be seen of it from outside."""

import os
import pathlib
import re
import signal
import subprocess
import time

import client

ROOT = pathlib.Path(__file__).parents[2]
TICK = os.sysconf("SC_CLK_TCK")


class NotReady(Exception):
    """The server ended, or did not say that it listens."""


class Server:
    """A server with the demo model on a free port. It is killed at the end of the block if it still runs."""

    def __init__(self, setting, *flags, prefix=()):
        number = setting.number()
        self.log = setting.scratch / f"server-{number}.log"
        template = ROOT / "tests/golden/chat/parts.jinja"
        command = [*prefix, *setting.command(number), "serve", "--model", "demo", "--port", "0", "--quiet", "--chat-template", template]
        if "--plan-cache" not in flags:
            command += ["--plan-cache", setting.scratch / "plans"]
        begin = time.perf_counter()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in [*command, *flags]], stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        self.port = None
        self.begin = begin

    def listening(self):
        """Waits until the server answers requests. Returns the seconds since its start."""
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        if not found:
            self.process.kill()
            self.process.wait()
            raise NotReady(f"the server said {line!r} and ended with {self.process.returncode}; {self.said()[-500:]}")
        self.port = int(found[1])
        return time.perf_counter() - self.begin

    def __enter__(self):
        if self.port is None:
            self.listening()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def signal(self, which):
        self.process.send_signal(which)

    def stop(self):
        """Ends the server with SIGTERM. Returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(client.PATIENCE)

    def said(self):
        """What the server wrote to standard error so far."""
        return self.log.read_text(errors="replace")

    def status(self, field):
        """A number of /proc/PID/status: `VmRSS` in KiB, `Threads`."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)[1])

    def resident_mib(self):
        return self.status("VmRSS") / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self):
        """Processor time that all threads took so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    async def metrics(self):
        """The value of every metric by its name and labels."""
        answer = await client.get(self.port, "/metrics")
        lines = [line for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
