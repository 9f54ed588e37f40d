"""A provider that writes bytes as a test gives them, right or wrong, and tells its connections apart."""

import socket
import struct
import threading
import time
from contextlib import closing, suppress

HANG_UP = None
"""Instead of an answer, or at its end: the connection is closed."""

RESET = object()
"""Instead of an answer: the connection is closed as one is whose last bytes were not read any more."""

PAUSE = object()
"""Between two pieces of an answer: time for the first to be read by itself."""


class RawProvider:
    """Answers one request after the other with ``answers``; ``requests`` are the bodies that came, by connection."""

    def __init__(self):
        self.answers, self.requests, self._open = [], [], []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def play(self, *answers):
        """Begin anew, with these answers and no connection open."""
        self._hang_up()
        self.answers, self.requests = list(answers), []

    def close(self):
        self._hang_up()
        self._listener.close()

    def _hang_up(self):
        for connection, serving in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            serving.join(10)  # until the other side has hung up, too
        self._open = []

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                serving = threading.Thread(target=self._serve, args=(connection, len(self._open) + 1), daemon=True)
                self._open.append((connection, serving))
                serving.start()

    def _serve(self, connection, number):
        with closing(connection), connection.makefile("rb") as lines, suppress(OSError):
            while (body := self._request(lines)) is not None:
                self.requests.append((number, body))
                for piece in self.answers.pop(0):
                    if piece is HANG_UP:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    if piece is RESET:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    if piece is PAUSE:
                        time.sleep(0.3)
                    else:
                        connection.sendall(piece)

    def _request(self, lines):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = lines.readline()
            if not line:
                return None
            head += line
        named = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return lines.read(int(named[0])) if named else b""
