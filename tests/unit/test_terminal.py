"""What is written for people: nothing in it that a terminal would obey."""

import logging
import os
import re
import subprocess
import sys

import pytest
from logged_sessions import grown, log_in_folder
from waiting import PATIENCE

from instrumentation.reports.table import columns
from pager.terminal import Formatter, harmless, say

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\r\x08\x00\x7f\x85\u2028\udcff"
OBEYED = re.compile("[^\n\t\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\U0010ffff]")


@pytest.mark.parametrize("number", [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x202A, 0x202E, 0x2066, 0x2069, 0x2028])
def test_a_character_that_a_terminal_would_obey_is_shown_by_its_number(number):
    letter = chr(number)
    shown = harmless(f"a{letter}b")
    assert shown == f"a{letter}b" if letter in "\t\n" else f"a{ascii(letter)[1:-1]}b"
    assert not OBEYED.search(shown)


def test_letters_of_all_languages_stay_as_they_are():
    text = "Grüße, 世界, שלום, مرحبا, नमस्ते, 👩‍👩‍👧, ▁▂▃ → …\tand\nso on"
    assert harmless(text) == text


def test_what_is_said_is_harmless_on_both_streams(capsys):
    say(ESCAPE)
    say(ESCAPE, error=True)
    told = capsys.readouterr()
    assert told.out == told.err
    assert not OBEYED.search(told.out)
    assert r"\x1b]0;owned\x07" in told.out


def test_of_styled_text_only_colours_reach_the_terminal(capsys):
    say(f"\x1b[1;31mred\x1b[0m {ESCAPE}", styled=True)
    told = capsys.readouterr().out
    assert told.startswith("\x1b[1;31mred\x1b[0m ")
    assert not OBEYED.search(told.replace("\x1b[1;31m", "").replace("\x1b[0m", ""))


def test_a_cell_is_one_line_whatever_its_text_is():
    lines = list(columns([("tool", "calls"), (f"read\n{ESCAPE}", "1"), ("x", "2")]))
    assert len(lines) == 3
    assert not OBEYED.search("".join(lines))


def test_a_message_of_the_log_is_one_harmless_line_and_what_was_raised_stands_below():
    with pytest.raises(ValueError, match="owned") as caught:
        int(ESCAPE)
    raised = (caught.type, caught.value, caught.tb)
    path = f"/v1\n{ESCAPE}"
    record = logging.LogRecord("ctxpager", logging.ERROR, "", 1, "passed on unread: %s", (path,), raised)
    first, *below = Formatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first.startswith(r"ERROR passed on unread: /v1\n\x1b]0;")
    assert below[0] == "Traceback (most recent call last):"
    assert not OBEYED.search("\n".join([first, *below]))


# ---------------------------------------------------------------- terminals without some letters


def printed(words, encoding):
    code = f"from pager.terminal import printable; printable(); print({words!r})"
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=PATIENCE, check=True, env=env
    ).stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_of_reports_have_a_likeness_where_a_terminal_lacks_them(encoding):
    assert printed("▁▂▃▄▅▆▇█ ─── tools… 漢", encoding) == b"_.:-=+*# --- tools~ ?\n"


def test_a_terminal_that_has_all_letters_gets_them():
    assert printed("▁─… 漢", "utf-8") == "▁─… 漢\n".encode()


def test_a_way_to_treat_letters_that_the_user_chose_stays():
    assert printed("▁", "ascii:backslashreplace") == b"\\u2581\n"


def test_commands_print_a_likeness_on_a_terminal_that_knows_ascii_alone(tmp_path):
    log_in_folder(tmp_path / "log", grown(4), harness="größe▁/1")
    (tmp_path / "empty.toml").touch()
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}

    def ran(*arguments):
        command = [sys.executable, "-m", "pager.cli", *arguments, "--data-dir", str(tmp_path / "log")]
        config = ["--config", str(tmp_path / "empty.toml")]
        done = subprocess.run([*command, *config], capture_output=True, timeout=PATIENCE, check=False, env=env)
        return done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii")

    status, out, err = ran("report", "--by", "harness")
    assert (status, err) == (0, "")
    assert "gr??e_" in out
    status, out, err = ran("report", "keine größe")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"ctxpager: .*keine gr\S+e.*\n", err), "one line that says what is wrong"
