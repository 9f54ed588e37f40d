"""The command line, and the one place that puts the parts together."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pager.cli import trust
from pager.config.loading import (
    KEYS,
    Loaded,
    Settings,
    load,
    render,
    sources,
)
from pager.errors import ConfigError, OptionError, PagerError, StoreCorrupt
from pager.log.store import Store
from pager.terminal import printable, say

if TYPE_CHECKING:
    from instrumentation.dashboard.server import Dashboard

ANALYZE = "say what existing logs of agents wasted, and what paging would have saved; needs no proxy"
EXPLAIN = "say why each page stayed or went at a call, in numbers"
TOOLS = "say what tools took in prompts, as offered and as sent, and how calls of them went"
EXPERIMENT = "compare the arms of an experiment by what their sessions cost"
REPORT = "say what sessions cost, what they would have cost unpaged, and what was wasted"
REPLAY = "play recorded sessions under policies, and say what each would have cost"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    printable()
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.run is not _demo:
        command = f"{parser.prog} {options.command}"
        parser.exit(2, f"{command}: unrecognized arguments: {' '.join(rest)}; see {command} --help\n")
    options.rest = rest
    try:
        status: int = options.run(options)
    except PagerError as error:
        say(f"ctxpager: {error}", error=True)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ctxpager", description="A paging proxy in front of a model API.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, run, words in (
        ("serve", _serve, "run the proxy"),
        ("config", _config, "print the settings in force and where each came from"),
        ("check", _check, "verify the session log; --repair mends what can be mended"),
        ("learn", _learn, "work out what the log's sessions teach, for those that begin after it"),
    ):
        command = commands.add_parser(name, help=words, description=words, usage=_usage(name))
        _add_settings(command)
        command.set_defaults(run=run)
        if name == "check":
            command.add_argument("--repair", action="store_true", help="mend what can be mended")
        elif name == "learn":
            command.add_argument("--dry-run", action="store_true", help="only say it, and log nothing")
    _add_analyze(
        commands.add_parser("analyze", help=ANALYZE, description=ANALYZE, usage=_usage("analyze", "[PATH ...]"))
    )
    _add_replay(
        commands.add_parser(
            "replay", help=REPLAY, description=REPLAY, usage=_usage("replay", "SESSION|FILE|FOLDER ...")
        )
    )
    _add_explain(
        commands.add_parser(
            "explain", help=EXPLAIN, description=EXPLAIN, usage=_usage("explain", "SESSION [BRANCH:]CALL[#ATTEMPT]")
        )
    )
    _add_experiment(
        commands.add_parser("experiment", help=EXPERIMENT, description=EXPERIMENT, usage=_usage("experiment"))
    )
    _add_tools(commands.add_parser("tools", help=TOOLS, description=TOOLS, usage=_usage("tools", "[SESSION ...]")))
    _add_report(commands.add_parser("report", help=REPORT, description=REPORT, usage=_usage("report", "[SESSION]")))
    trust.add(commands.add_parser("trust", help=trust.WORDS, description=trust.WORDS))
    demo = commands.add_parser("demo", help="play a sample session through the proxy", add_help=False)
    demo.set_defaults(run=_demo)
    return parser


def _usage(command: str, *places: str) -> str:
    """How a command is called, without the settings that it also takes."""
    return " ".join(["ctxpager", command, "[OPTION ...]", *places])


def _add_analyze(command: argparse.ArgumentParser) -> None:
    _add_settings(command, leave_out={"policy"})
    command.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="logs, or folders; else the usual places")
    command.add_argument(
        "--policies", default="cost_aware", metavar="A,B,C", help="the policies to play sessions under"
    )
    command.add_argument("--jobs", type=_positive, metavar="N", help="how many processes work at a time")
    command.add_argument(
        "--since", default="", metavar="SPAN", help="only sessions with a call in the last 30d, 24h, 30m"
    )
    command.add_argument("--min-calls", type=int, default=2, metavar="N", help="leave shorter sessions out")
    command.add_argument("--no-cache", action="store_true", help="neither use nor keep what was found of files before")
    command.add_argument("--json", action="store_true", help="print plain values instead of tables")
    command.set_defaults(run=_analyze)


def _add_replay(command: argparse.ArgumentParser) -> None:
    _add_settings(command, leave_out={"policy"})
    command.add_argument("places", nargs="+", metavar="SESSION|FILE|FOLDER", help="what to play; all: the whole log")
    command.add_argument("--policy", dest="policies", metavar="A,B,C", help="the policies to play it under")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of a policy")
    command.add_argument("--jobs", type=_positive, default=1, metavar="N", help="how many processes play at a time")
    command.add_argument("--min-calls", type=int, default=5, metavar="N", help="leave shorter sessions out")
    command.add_argument(
        "--caching",
        choices=("marks", "prefix"),
        help="what the provider finds again; default: by model and API",
    )
    command.add_argument(
        "--lifetime", choices=("5m", "1h"), help="what the client's cache marks ask for; default: as recorded"
    )
    command.add_argument("--json", action="store_true", help="print plain values instead of a table")
    command.set_defaults(run=_replay)


def _add_explain(command: argparse.ArgumentParser) -> None:
    _add_settings(command, leave_out={"policy"})
    command.add_argument("session", metavar="SESSION", help="the id of a session, or its beginning")
    command.add_argument("call", metavar="[BRANCH:]CALL[#ATTEMPT]", help="by default of branch 0, its first attempt")
    command.add_argument("--policy", dest="instead", default="", metavar="NAME", help="weigh under this policy instead")
    command.add_argument("--tools", action="store_true", help="say of each tool why it is sent as it is, however many")
    command.add_argument("--json", action="store_true", help="print plain values instead of columns")
    command.set_defaults(run=_explain)


def _add_experiment(command: argparse.ArgumentParser) -> None:
    _add_settings(command)
    command.add_argument(
        "--since", type=_not_negative, metavar="DAYS", help="only sessions that began in the last DAYS days"
    )
    command.add_argument("--json", action="store_true", help="print plain values instead of a table")
    command.set_defaults(run=_experiment)


def _add_tools(command: argparse.ArgumentParser) -> None:
    _add_settings(command)
    command.add_argument("sessions", nargs="*", metavar="SESSION", help="a session's id, or its beginning; else all")
    command.add_argument(
        "--since", type=_not_negative, metavar="DAYS", help="only sessions that began in the last DAYS days"
    )
    command.add_argument("--json", action="store_true", help="print plain values instead of columns")
    command.set_defaults(run=_tools)


def _add_report(command: argparse.ArgumentParser) -> None:
    _add_settings(command)
    command.add_argument("session", nargs="?", default="", metavar="SESSION", help="a session's id, or its beginning")
    command.add_argument("--since", default="", metavar="SPAN", help="only calls of the last 7d, 24h, 30m or days")
    by = ("session", "day", "model", "harness", "branch", "call")
    command.add_argument("--by", choices=by, default="", help="what to sum calls up by")
    command.add_argument("--format", choices=("text", "json", "csv", "html"), default="text", help="how to write it")
    command.add_argument("--json", dest="format", action="store_const", const="json", help="short for --format json")
    command.add_argument("--with-content", action="store_true", help="with the text of pages, in json and html")
    command.add_argument("-o", "--output", metavar="FILE", help="write it to a file")
    command.set_defaults(run=_report)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command in one line, instead of all that could have been said."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Prints the version; looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # slow to import

        say(f"ctxpager {version('ctxpager')}")
        parser.exit()


def _add_settings(command: argparse.ArgumentParser, leave_out: Collection[str] = ()) -> None:
    """Let a command take all settings as flags, which its help shows below what is its own."""
    settings = command.add_argument_group(
        "settings", "Most commands take them; `ctxpager config` shows those in force."
    )
    settings.add_argument("--config", metavar="FILE", help="the settings file to read")
    for key in KEYS:
        if key.name in leave_out:
            continue
        words = key.description.split(". ")[0].replace("%", "%%")
        if key.is_switch:
            settings.add_argument(key.flag, dest=key.name, action=argparse.BooleanOptionalAction, help=words)
        else:
            settings.add_argument(key.flag, dest=key.name, metavar="VALUE", help=words)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def _not_negative(text: str) -> float:
    if not 0 <= (number := float(text)) < inf:
        raise argparse.ArgumentTypeError(f"{text}: must be 0 or more")
    return number


def _load(options: argparse.Namespace) -> Loaded:
    known = {"config", *(key.name for key in KEYS)}
    flags = {name: value for name, value in vars(options).items() if name in known}
    loaded = load(flags, cwd=Path.cwd(), env=os.environ)
    for notice in loaded.notices:
        say(f"ctxpager: {notice}", error=True)
    _check_names(loaded)
    return loaded


def _check_names(loaded: Loaded) -> None:
    """Check the settings whose allowed values only the plug-ins know; an error says where the value came from."""
    from pager.log.stores import expect_known
    from pager.paging.policy_loader import load_policy
    from pager.pricing.rates import in_force  # these take a while to import

    settings = loaded.settings
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("policy", lambda: load_policy(settings.policy, settings.paging.policy_options)),
        ("experiment.arms", lambda: [load_policy(name, {}) for name in settings.experiment.arms]),
        ("store", lambda: expect_known(settings.store)),
        ("prices", lambda: in_force(settings.prices, {})),
        ("models", lambda: in_force("", settings.models)),
    )
    for key, check in checks:
        try:
            check()
        except PagerError as error:
            wrong = "paging.policy_options" if isinstance(error, OptionError) and key == "policy" else key
            raise ConfigError(f"{loaded.origin[wrong]}: {wrong}: {error}") from error


def _serve(options: argparse.Namespace) -> int:
    from instrumentation.accounting import live_cost  # the server's imports are not needed by the other commands
    from pager.pricing.rates import in_force
    from pager.proxy.serving.main import Words, run

    loaded = _load(options)
    settings = loaded.settings
    for line in sources(loaded):
        say(f"ctxpager: {line}", flush=True)
    shown = _shown(settings) if settings.dashboard.is_shown(settings.host) else None
    models = in_force(settings.prices, settings.models)
    words = Words(live_cost.price(models), lambda began: live_cost.summary(lambda: _open_log(settings), models, began))
    return run(settings, os.environ, shown, words)


def _shown(settings: Settings) -> "Callable[[Store], Dashboard]":
    """Makes the dashboard of a log."""
    from instrumentation.dashboard.server import Dashboard  # only the proxy shows it

    return lambda store: Dashboard(store, settings)


def _config(options: argparse.Namespace) -> int:
    say(render(_load(options)), end="")
    return 0


def _check(options: argparse.Namespace) -> int:
    from instrumentation.accounting.log_check import check  # not needed by the server
    from pager.log.stores import salvage

    settings = _load(options).settings
    rebuilt: list[str] = []
    try:
        store = _open_log(settings)
    except StoreCorrupt:
        if not options.repair:
            raise
        rebuilt = salvage(settings.store, settings.data_dir)
        store = _open_log(settings)
    try:
        found = check(store, repair=options.repair)
    finally:
        store.close()
    repaired = [line if line.startswith("lost: ") else f"repaired: {line}" for line in (*rebuilt, *found.repaired)]
    for line in [*repaired, *(f"problem: {line}" for line in found.problems)]:
        say(line)
    state = "clean" if not found.problems else f"{len(found.problems)} problems"
    say(f"{settings.data_dir}: {found.events} events, {found.blobs} blobs, {state}")
    return 1 if found.problems else 0


def _open_log(settings: Settings) -> Store:
    from pager.log.stores import open_store

    if not settings.data_dir.is_dir():
        raise ConfigError(f"data_dir: there is no folder {settings.data_dir}; `ctxpager serve` makes it and logs there")
    return open_store(settings.store, settings.data_dir)


def _learn(options: argparse.Namespace) -> int:
    from time import time

    from instrumentation.learning.describe import told  # not needed by the server
    from instrumentation.learning.learn import keep, learn
    from pager.wire.dialects import load as load_dialect

    store = _open_log(_load(options).settings)
    try:
        lesson = learn(store, load_dialect, time())
        is_new = not options.dry_run and keep(store, lesson, time())
    finally:
        store.close()
    say(told(lesson), end="")
    if is_new:
        say("logged: sessions that begin from now on go by it")
    return 0


def _analyze(options: argparse.Namespace) -> int:
    from instrumentation.analyze import command  # not needed by the server

    wanted = command.Wanted(
        paths=options.paths,
        policies=options.policies,
        jobs=options.jobs or os.cpu_count() or 1,
        since=options.since,
        shortest=options.min_calls,
        caches=not options.no_cache,
        plain=options.json,
    )
    try:
        found, told = command.run(wanted, _load(options).settings, os.environ, sys.stdout, sys.stderr)
    except KeyboardInterrupt:
        say("ctxpager: interrupted; files that are done are read no more", error=True)
        return 130
    say(told, end="")
    return 0 if found else 1


def _replay(options: argparse.Namespace) -> int:
    from instrumentation.replay import policy_options as chosen  # not needed by the server
    from instrumentation.replay import sources
    from instrumentation.replay.compare import Conditions, compare
    from instrumentation.replay.prepared import Caching
    from instrumentation.reports import replay
    from pager.paging.settle_tools import Shortening
    from pager.pricing.rates import in_force

    settings = _load(options).settings
    configured = (settings.policy, settings.paging.policy_options)
    named = settings.policy if options.policies is None else options.policies
    contenders = chosen.contenders(named, options.set, configured)
    tools = Shortening(settings.tools.shorten != "off", settings.tools.defer_above)
    marks = None if options.caching is None else options.caching == "marks"
    cache = Caching(marks, {None: 0.0, "5m": 300.0, "1h": 3_600.0}[options.lifetime])
    conditions = Conditions(settings.prices, settings.models, options.min_calls, settings.paging.grace, tools, cache)
    models = in_force(settings.prices, settings.models)
    found = sources.find(options.places, lambda: _open_log(settings), models)
    comparison = compare(found, contenders, conditions, options.jobs)
    if not comparison.played:
        raise ConfigError(f"there is nothing to play: {comparison.left_out} sessions have too few calls (--min-calls)")
    told = json.dumps(replay.as_json(comparison)) + "\n" if options.json else replay.as_table(comparison)
    say(told, end="")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from instrumentation.accounting.explain import Conditions, explain
    from instrumentation.reports import explain as explain_words  # not needed by the server
    from pager.pricing.rates import in_force
    from pager.wire.dialects import load as load_dialect

    settings = _load(options).settings
    conditions = Conditions(
        in_force(settings.prices, settings.models),
        settings.policy,
        settings.paging.policy_options,
        settings.paging.cache_marks,
        settings.paging.grace,
        options.instead,
    )
    store = _open_log(settings)
    try:
        found = explain(store, options.session, options.call, conditions, load_dialect)
    finally:
        store.close()
    plain = options.json
    told = (
        json.dumps(explain_words.as_json(found)) + "\n" if plain else explain_words.as_text(found, tools=options.tools)
    )
    say(told, end="")
    return 0


def _tools(options: argparse.Namespace) -> int:
    from time import time

    from instrumentation.accounting.tool_use import account, chosen
    from instrumentation.reports import tools as schema_words  # not needed by the server
    from pager.wire.dialects import load as load_dialect

    since = 0.0 if options.since is None else time() - 86_400 * options.since
    store = _open_log(_load(options).settings)
    try:
        found = account(store, chosen(store, options.sessions, since), load_dialect)
    finally:
        store.close()
    if not found.sessions and not found.without:
        raise ConfigError("the log holds no session" + (" that began since then" if options.since is not None else ""))
    if not found.sessions:
        raise ConfigError(
            f"nothing was decided of tools in {found.without:,} sessions: they offered none that can be read, were not "
            'paged, began before there were such decisions, or [tools] shorten = "off" was set'
        )
    told = json.dumps(schema_words.as_json(found)) + "\n" if options.json else schema_words.as_text(found)
    say(told, end="")
    return 0


def _report(options: argparse.Namespace) -> int:
    from shutil import get_terminal_size
    from time import time

    from instrumentation.reports import gather
    from instrumentation.reports import report as report_words  # not needed by the server
    from pager.pricing.rates import in_force
    from pager.wire.dialects import load as load_dialect

    settings = _load(options).settings
    since = time() - gather.seconds(options.since) if options.since else 0.0
    wanted = gather.Wanted(options.session, since, options.by, options.with_content)
    store = _open_log(settings)
    try:
        found = gather.gather(store, wanted, in_force(settings.prices, settings.models), load_dialect)
    finally:
        store.close()
    shown = sys.stdout.isatty() and not options.output
    width = get_terminal_size().columns if shown else report_words.WIDTH
    told = report_words.written(found, options.format, with_content=options.with_content, width=width, color=shown)
    if options.output:
        try:
            Path(options.output).write_text(told, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"-o {options.output}: can't be written: {error.strerror or error}") from error
    else:
        say(told, end="", styled=shown)
    return 0


def _experiment(options: argparse.Namespace) -> int:
    from time import time

    from instrumentation.accounting.experiment import report
    from instrumentation.reports import experiment  # not needed by the server
    from pager.pricing.rates import in_force

    settings = _load(options).settings
    since = 0.0 if options.since is None else time() - 86_400 * options.since
    store = _open_log(settings)
    try:
        found = report(store, in_force(settings.prices, settings.models), settings.experiment.arms, since)
    finally:
        store.close()
    if not found.arms:
        raise ConfigError("no session of the log was given to an arm; [experiment] arms = { ... } begins an experiment")
    told = json.dumps(experiment.as_json(found)) + "\n" if options.json else experiment.as_text(found)
    say(told, end="")
    return 0


def _demo(options: argparse.Namespace) -> int:
    from instrumentation.accounting.demo_cost import weigh
    from pager.testing.demo import main as play

    return play(options.rest, weigh)


if __name__ == "__main__":
    sys.exit(main())
