"""Finds the commands and runs the one that is named.

Every module of this folder is a command of its name, with hyphens, except this one and ``options``. A command has
``HELP`` (one line), ``EXAMPLE`` (command lines), ``add_arguments(parser)`` and ``run(options)``, which returns the exit
status.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn, Protocol, cast

import pager.cli
from pager.errors import PagerError
from pager.terminal import printable, say

NO_COMMANDS = ("__main__", "main", "options")


class Command(Protocol):
    """What a module must have to be a command."""

    HELP: str
    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments, and the settings that mean something to it."""

    def run(self, options: argparse.Namespace) -> int:
        """Run it; the exit status. Imports what it needs itself: the other commands don't."""


def command_names() -> list[str]:
    """The names of all commands, in alphabetical order."""
    found = (module.name for module in iter_modules(pager.cli.__path__) if module.name not in NO_COMMANDS)
    return [name.replace("_", "-") for name in found]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    printable()
    parser = command_parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        prog = f"{parser.prog} {options.command}"
        parser.exit(2, f"{prog}: unrecognized arguments: {' '.join(unknown)}; see {prog} --help\n")
    try:
        status: int = options.run(options)
    except PagerError as error:
        say(f"ctxpager: {error}", error=True)
        return 2
    return status


def command_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="ctxpager",
        description="A paging proxy in front of a model API.",
        epilog="`ctxpager COMMAND --help` explains a command, with an example.",
    )
    parser.add_argument("--version", action=_VersionFlag, nargs=0, help="show the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in command_names():
        found = cast("Command", import_module(f"pager.cli.{name.replace('-', '_')}"))
        commands.add_parser(name, help=found.HELP, found=found)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser that adds a command's arguments once the command is used, and reports a mistake in one line."""

    def __init__(self, *, found: Command | None = None, **settings: Any) -> None:  # noqa: ANN401 - as argparse has them
        if found is not None:
            example = "\n".join(f"  {line}" for line in found.EXAMPLE.splitlines())
            settings |= {"description": found.HELP, "epilog": f"example:\n{example}"}
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self._found = found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As argparse does, with the command's arguments."""
        found, self._found = self._found, None
        if found is not None:
            found.add_arguments(self)
            self.set_defaults(run=found.run)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End the program with one line."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class _VersionFlag(argparse.Action):
    """Prints the version; looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # slow to import

        say(f"ctxpager {version('ctxpager')}")
        parser.exit()
