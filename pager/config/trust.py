"""Remembers which folders' settings files the user trusts.

A folder is trusted for the content that its file had then. Whatever changes the file, an edit or a pull, it has to be
trusted anew, as what was agreed to is not what it says now.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import sha256
from pathlib import Path

from pager.errors import ConfigError

FILE_NAME = "trusted.json"


class TrustState(Enum):
    """The user's decision on a folder's file."""

    TRUSTED = "trusted"
    CHANGED = "no longer what was trusted"
    UNKNOWN = "not trusted"


class Trusted:
    """The trusted folders, in a file of the user's configuration folder: each resolved path with its file's digest."""

    def __init__(self, config_dir: Path) -> None:
        self._path = config_dir / FILE_NAME

    def standing(self, folder: Path, content: bytes) -> TrustState:
        """The user's decision on a folder whose file has this content."""
        known = self.folders().get(_name(folder))
        if known is None:
            return TrustState.UNKNOWN
        return TrustState.TRUSTED if known == _digest(content) else TrustState.CHANGED

    def folders(self) -> Mapping[str, str]:
        """The digest of the trusted file by folder; empty where nothing is trusted. Raises ConfigError."""
        try:
            known = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"file {self._path}: can't be read: {error}; move it away and trust folders anew"
            ) from None
        if not isinstance(known, dict):
            raise ConfigError(f"file {self._path}: not a table of folders; move it away and trust folders anew")
        return known

    def listed(self, file_name: str) -> Iterator[tuple[str, str]]:
        """Every trusted folder, and in words whether its file of this name is still the one that was trusted."""
        for folder in self.folders():
            try:
                yield folder, self.standing(Path(folder), (Path(folder) / file_name).read_bytes()).value
            except OSError as error:
                yield folder, f"its {file_name} can't be read: {error.strerror}"

    def add(self, folder: Path, content: bytes) -> None:
        """Trust a folder while its file has this content."""
        self._write({**self.folders(), _name(folder): _digest(content)})

    def remove(self, folder: Path) -> bool:
        """Trust a folder no more; False where it was not trusted."""
        known = dict(self.folders())
        was_known = known.pop(_name(folder), None) is not None
        if was_known:
            self._write(known)
        return was_known

    def _write(self, known: Mapping[str, str]) -> None:
        # Whole or not at all: a file that breaks off half-way would trust nothing and stop every command.
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, prefix=FILE_NAME, delete=False) as file:
                file.write(json.dumps(known, indent=1) + "\n")
            os.replace(file.name, self._path)  # noqa: PTH105 - both are names
        except OSError as error:
            raise ConfigError(f"file {self._path}: can't be written: {error.strerror}") from None


def _name(folder: Path) -> str:
    return str(folder.resolve())


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
