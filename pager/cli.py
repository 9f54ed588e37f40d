"""The command line, and the one place that puts the parts together."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pager.config import KEYS, Loaded, load, render
from pager.errors import ConfigError, PagerError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        status: int = options.run(options)
    except PagerError as error:
        print(f"ctxpager: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ctxpager", description="A paging proxy in front of a model API.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, words in (
        ("serve", _serve, "run the proxy"),
        ("config", _config, "print the settings in force and where each came from"),
        ("check", _check, "verify the session log; --repair mends what can be mended"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        _add_settings(command)
        command.set_defaults(run=run)
        if name == "check":
            command.add_argument("--repair", action="store_true", help="mend what can be mended")
    demo = commands.add_parser("demo", help="play a sample session through the proxy", add_help=False)
    demo.add_argument("rest", nargs=argparse.REMAINDER)
    demo.set_defaults(run=_demo)
    return parser


class _Version(argparse.Action):
    """Prints the version; looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # slow to import

        print(f"ctxpager {version('ctxpager')}")  # noqa: T201
        parser.exit()


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="the settings file to read")
    for key in KEYS:
        words = key.description.split(". ")[0].replace("%", "%%")
        if key.is_switch:
            command.add_argument(key.flag, dest=key.name, action=argparse.BooleanOptionalAction, help=words)
        else:
            command.add_argument(key.flag, dest=key.name, metavar="VALUE", help=words)


def _load(options: argparse.Namespace) -> Loaded:
    flags = {name: value for name, value in vars(options).items() if name not in {"run", "repair"}}
    loaded = load(flags, cwd=Path.cwd(), env=os.environ)
    _check_names(loaded)
    return loaded


def _check_names(loaded: Loaded) -> None:
    """Check the settings whose allowed values only the plug-ins know; an error says where the value came from."""
    from pager.models import in_force  # these take a while to import
    from pager.plugins import load_policy
    from pager.stores import expect_known

    settings = loaded.settings
    for key, check in (
        ("policy", lambda: load_policy(settings.policy, settings.paging.policy_options)),
        ("store", lambda: expect_known(settings.store)),
        ("prices", lambda: in_force(settings.prices, {})),
        ("models", lambda: in_force("", settings.models)),
    ):
        try:
            check()
        except PagerError as error:
            raise ConfigError(f"{loaded.origin[key]}: {key}: {error}") from error


def _serve(options: argparse.Namespace) -> int:
    from pager.server.serve import run  # the server's imports are not needed by the other commands

    return run(_load(options).settings, os.environ)


def _config(options: argparse.Namespace) -> int:
    print(render(_load(options)), end="")  # noqa: T201
    return 0


def _check(options: argparse.Namespace) -> int:
    from instrumentation.check import check  # not needed by the server
    from pager.stores import open_store

    settings = _load(options).settings
    if not settings.data_dir.is_dir():
        raise ConfigError(f"data_dir: there is no folder {settings.data_dir}")
    store = open_store(settings.store, settings.data_dir)
    try:
        found = check(store, repair=options.repair)
    finally:
        store.close()
    for line in [*(f"repaired: {line}" for line in found.repaired), *(f"problem: {line}" for line in found.problems)]:
        print(line)  # noqa: T201
    state = "clean" if not found.problems else f"{len(found.problems)} problems"
    print(f"{settings.data_dir}: {found.events} events, {found.blobs} blobs, {state}")  # noqa: T201
    return 1 if found.problems else 0


def _demo(options: argparse.Namespace) -> int:
    from pager.demo import main as play

    return play(options.rest)


if __name__ == "__main__":
    sys.exit(main())
