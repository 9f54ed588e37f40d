"""Detects other proxies on the same data folder, by a locked file that the kernel releases by itself."""

import fcntl
import os
from pathlib import Path

FILE_NAME = "serving.lock"


class Presence:
    """Marks a folder as served by this process; ``other`` is who serves it already, empty if nobody does."""

    def __init__(self, folder: Path) -> None:
        self.other = ""
        self._handle: int | None = None
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(folder / FILE_NAME, flags, 0o600)
        except OSError:  # opening the log reports a folder that can't be written
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            name = os.read(handle, 200).decode("utf-8", "replace")
            self.other = "".join(letter for letter in name if letter.isprintable()) or "another process"
            os.close(handle)
            return
        self._handle = handle

    def listening(self, address: str) -> None:
        """Tell others where this process listens, if it is the first here."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} at {address}".encode(), 0)

    def close(self) -> None:
        """Serve the folder no more."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
