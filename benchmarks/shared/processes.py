"""Starts the servers under test and reads what they use, from Linux's own books."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Target:
    """A server to send calls to; ``pid`` is the process whose cost is measured, 0 where none is."""

    name: str
    port: int
    pid: int = 0

    def cpu(self) -> float:
        """Seconds of CPU, user and system, of the process, its threads and its children, so far."""
        return sum(_cpu_clock(pid) for pid in _family(self.pid)) if self.pid else 0.0

    def rss(self) -> int:
        """Bytes in memory now."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE for pid in _family(self.pid))

    def peak(self) -> int:
        """The most bytes in memory since ``forget_peak``."""
        return sum(_high_water(pid) for pid in _family(self.pid))

    def forget_peak(self) -> None:
        """Begin to look for the peak from here."""
        for pid in _family(self.pid):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _cpu_clock(pid: int) -> float:
    # The clock that clock_getcpuclockid(3) names: nanoseconds, where /proc/PID/stat counts hundredths of a second.
    return time.clock_gettime((~pid << 3) | 2)


def _family(pid: int) -> list[int]:
    found = [pid]
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listing.read_text().split():
            found += _family(int(child))
    return found


def _high_water(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    if "VmHWM:" not in status:
        raise RuntimeError(f"process {pid} ended while it was measured")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, *, ready: str = "", log: Path, env: Mapping[str, str] | None = None
) -> Iterator[int]:
    """The process id of a server that answers; it is stopped at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(env or {})})
    try:
        await_answer(process, port, ready, log)
        yield process.pid
    finally:
        if process.poll() is not None:
            print(f"{command} ended with {process.returncode}:\n{log.read_text()[-3000:]}", file=sys.stderr)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_answer(process: subprocess.Popen[bytes], port: int, ready: str, log: Path, limit: float = 120) -> None:
    """Wait until the server accepts connections, and answers at ``ready`` where that is given."""
    deadline = time.monotonic() + limit
    while not _answers(port, ready):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no server on port {port}; its last words:\n{log.read_text()[-3000:]}")
        time.sleep(0.005)


def _answers(port: int, ready: str) -> bool:
    try:
        if ready:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5) as answer:
                return bool(answer.status == 200)
        socket.create_connection(("127.0.0.1", port), 1).close()
    except (OSError, urllib.error.URLError):
        return False
    return True


def upstream(port: int) -> list[str]:
    """The command of the fixed model server."""
    return [sys.executable, "-m", "benchmarks.shared.fixed_upstream", str(port)]


def bare(port: int, upstream_port: int) -> list[str]:
    """The command of the bare proxy."""
    return [sys.executable, "-m", "benchmarks.shared.bare_proxy", str(port), f"http://127.0.0.1:{upstream_port}"]


def ctxpager(port: int, upstream_port: int, data: Path, policy: str = "keep_all") -> list[str]:
    """The command of ctxpager as a user starts it."""
    program = str(Path(sys.executable).with_name("ctxpager"))
    address = f"http://127.0.0.1:{upstream_port}/v1"
    return [program, "serve", f"--port={port}", f"--upstream={address}", f"--data-dir={data}", f"--policy={policy}"]
