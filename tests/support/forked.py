"""Programs of ours, each in a process of its own that is forked from one in which all modules are loaded already.

A proxy that is started so is the real one, and takes a tenth of the time: what it imports takes more than a second.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

from waiting import PATIENCE, wait_until


class Forked:
    """A process that runs the command line with these arguments; what it prints is in a file. As ``Popen`` is."""

    def __init__(self, arguments, output, env):
        asked = {"arguments": arguments, "output": str(output), "env": env, "folder": str(Path.cwd())}
        self.pid, self.returncode = _server().ask(asked), None

    def poll(self):
        if self.returncode is None:
            self.returncode = _server().ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout=PATIENCE):
        if not wait_until(lambda: self.poll() is not None, timeout):
            raise subprocess.TimeoutExpired("ctxpager", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that the others are forked from; it and all of them end with this one."""

    def __init__(self):
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._turn = threading.Lock()

    def ask(self, question):
        with self._turn:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def close(self):
        with self._process as process:
            process.stdin.close()


@cache
def _server():
    return _Server()


def end_all():
    """End every process that was started here."""
    if _server.cache_info().currsize:
        _server().close()
        _server.cache_clear()


def _load_all():
    for package in (pager, policies, instrumentation):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    tokens.load("o200k_base")
    gc.freeze()


def _serve():
    """Answer questions until there are no more; in a process that is forked, what it is asked to be."""
    running = set()
    for line in sys.stdin:
        question = json.loads(line)
        if "pid" not in question:
            answer = os.fork()
            if not answer:
                return question
            running.add(answer)
        else:
            pid, status = os.waitpid(question["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
            running.discard(pid)
        print(json.dumps(answer), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return None


def _become(asked):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output, nothing = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, max(output, nothing) + 1)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.exit(main(asked["arguments"]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted ends this process, and in turn it all others
    sys.path[0] = str(Path.cwd())
    import gc
    import importlib
    import pkgutil

    import instrumentation
    import pager
    import policies
    from pager.cli.main import main
    from pager.pricing import tokens

    _load_all()
    if asked := _serve():
        _become(asked)
