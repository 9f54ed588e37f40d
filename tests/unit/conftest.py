"""What tests of commands have in common."""

import pytest


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A folder without anybody's settings; the command line reads the process's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
