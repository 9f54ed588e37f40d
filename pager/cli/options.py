"""Options that several commands share, each with the same meaning everywhere.

What is imported inside functions takes a while to import, and not every command needs it.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from time import time
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from pager.errors import ConfigError, OptionError, PagerError
from pager.terminal import say

if TYPE_CHECKING:
    from pager.config.loading import Loaded
    from pager.config.setting_keys import SettingKey
    from pager.config.settings import Settings
    from pager.log.store import Store

LOG = ("data_dir", "store")
"""Settings of every command that reads the log."""

PRICES = ("prices", "models")
"""Settings of every command that says what calls cost."""

PROXY = ("host", "port")
"""Settings of every command that asks a running proxy."""

KEEP_WARM = "ctxpager serve --keep-warm auto"
"""The command that keeps prompts warm, as commands beside no proxy name it."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([dhm]?)")
_SECONDS = {"d": 86_400.0, "": 86_400.0, "h": 3_600.0, "m": 60.0}


def add_settings(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> None:
    """Let a command take settings as flags: those of these dotted names, by default all."""
    from pager.config.setting_keys import KEYS

    group = parser.add_argument_group("settings", "`ctxpager config` shows those in force and where they come from.")
    group.add_argument("--config", metavar="FILE", help="the settings file to read")
    for key in KEYS:
        if names is None or key.name in names:
            _add_setting(group, key)
    if names is None:
        parser.usage = f"{parser.prog} [OPTION ...]"


def _add_setting(group: "argparse._ArgumentGroup", key: "SettingKey") -> None:
    from pager.config.loading import toml

    default = key.words.default or (toml(key.default) if key.default not in ("", (), {}) else "none")
    first = key.description.split(". ")[0].removesuffix(".")
    words = f"{first[0].lower()}{first[1:]} (default: {default})".replace("%", "%%")
    if key.is_switch:
        group.add_argument(key.flag, dest=key.name, action=argparse.BooleanOptionalAction, help=words)
    else:
        group.add_argument(key.flag, dest=key.name, metavar=_placeholder(key), help=words)


def _placeholder(key: "SettingKey") -> str:
    """The placeholder of a setting's value in the help: its choices, if it has a few."""
    kind = key.field.annotation
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    return {Path: "DIR", int: "N", float: "N"}.get(kind, "VALUE") if isinstance(kind, type) else "VALUE"


def add_since(parser: argparse.ArgumentParser, what: str) -> None:
    """``--since``: ``what`` counts from when on; as unix seconds, 0 where it is not given."""
    parser.add_argument(
        "--since",
        type=since,
        default=0.0,
        metavar="SPAN|DATE",
        help=f"only {what} in the last 7d, 12h or 30m, or since a day such as 2026-09-01 in UTC (default: all)",
    )


def since(text: str) -> float:
    """The unix time that a span until now, or a day, begins at."""
    if span := _SPAN.fullmatch(text.strip()):
        return time() - float(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        wanted = "a span of time such as 7d, 12h or 30m, or a day such as 2026-09-01"
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {wanted}") from None


def add_policies(parser: argparse.ArgumentParser, default: str) -> None:
    """``--policy``: the names of one policy or several."""
    parser.add_argument(
        "--policy",
        dest="policies",
        action="append",
        metavar="NAME[,NAME ...]",
        help=f"the policies to play sessions under; can be given several times (default: {default})",
    )


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """``--format`` with these choices, the first by default, its short form ``--json``, and ``--output``."""
    parser.add_argument(
        "--format", choices=formats, default=formats[0], help=f"how to write it (default: {formats[0]})"
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it to a file instead of the terminal")


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number of this size or more."""

    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number, {least} or more")
        return int(text)

    return read


def write(options: argparse.Namespace, report: ModuleType, found: object, **own: object) -> None:
    """Write what was found in the format, and to the place, that the user wants; ``own`` are options of the text."""
    from instrumentation.reports.output_formats import written

    shown = sys.stdout.isatty() and not options.output
    width = get_terminal_size().columns if shown else 0
    text = written(report, found, options.format, width=width, color=shown, **own)
    if not options.output:
        say(text, end="", styled=shown)
        return
    try:
        Path(options.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"-o {options.output}: can't be written: {error.strerror or error}") from error


def load_settings(options: argparse.Namespace) -> "Settings":
    """The settings in force."""
    return load(options).settings


def load(options: argparse.Namespace) -> "Loaded":
    """The settings in force, with their origins; says which settings of a folder's file were ignored."""
    from pager.config.loading import KEYS
    from pager.config.loading import load as read

    known = {"config", *(key.name for key in KEYS)}
    flags = {name: value for name, value in vars(options).items() if name in known}
    loaded = read(flags, cwd=Path.cwd(), env=os.environ)
    for notice in loaded.notices:
        say(f"ctxpager: {notice}", error=True)
    _check_names(loaded)
    return loaded


def _check_names(loaded: "Loaded") -> None:
    """Check the settings whose allowed values only the plug-ins know; an error says where the value came from."""
    from pager.log.stores import expect_known
    from pager.paging.policy_choice import policy_of_arm
    from pager.paging.policy_loader import load_policy
    from pager.pricing.rates import in_force

    settings = loaded.settings
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("policy", lambda: load_policy(settings.policy, settings.paging.policy_options)),
        ("experiment.arms", lambda: [load_policy(policy_of_arm(name), {}) for name in settings.experiment.arms]),
        ("store", lambda: expect_known(settings.store_url)),
        ("prices", lambda: in_force(settings.prices, {})),
        ("models", lambda: in_force("", settings.models)),
    )
    for key, check in checks:
        try:
            check()
        except PagerError as error:
            wrong = "paging.policy_options" if isinstance(error, OptionError) and key == "policy" else key
            raise ConfigError(f"{loaded.origin[wrong]}: {wrong}: {error}") from error


def open_log(settings: "Settings", *, read_only: bool = True) -> "Store":
    """The log, which must exist."""
    from pager.log.stores import Location

    location = Location(settings.store_url)
    if not location.exists():
        place = location.folder or settings.store_url
        raise ConfigError(f"store: there is no log in {place}; `ctxpager serve` makes it and logs there")
    return location.open(read_only=read_only)


@contextmanager
def opened_log(settings: "Settings", *, read_only: bool = True) -> "Iterator[Store]":
    """The log, which must exist, closed at the end."""
    store = open_log(settings, read_only=read_only)
    try:
        yield store
    finally:
        store.close()


def policies(options: argparse.Namespace, default: str) -> str:
    """The policies that ``--policy`` names, with commas between them."""
    given: Sequence[str] | None = options.policies
    return default if given is None else ",".join(given)
