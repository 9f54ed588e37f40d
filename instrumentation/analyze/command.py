"""Does what ``ctxpager analyze`` is asked for: finds the logs and analyses them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from platformdirs import user_cache_dir
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from instrumentation.analyze import analysis
from instrumentation.analyze.agents import setups, usual_places
from instrumentation.analyze.file_summaries import ProgressReport
from instrumentation.analyze.result_cache import ResultCache
from instrumentation.replay import policy_options as chosen
from instrumentation.replay import warm_estimate
from instrumentation.replay.compare import Contender, ReplayConditions
from pager.config.loading import Settings
from pager.errors import ConfigError
from pager.log.stores import Location
from pager.paging.policy_choice import UNCHANGED
from pager.terminal import harmless


class AnalyzeOptions(NamedTuple):
    """What the user asks for; ``since`` is a unix time."""

    paths: Sequence[Path] = ()
    policies: str = "cost_aware"
    jobs: int = 1
    since: float = 0.0
    shortest: int = analysis.SHORTEST
    caches: bool = True


def run(
    wanted: AnalyzeOptions, settings: Settings, env: Mapping[str, str], err: TextIO
) -> tuple[analysis.Analysis, list[str]]:
    """What was found, and how to start each agent with the proxy.

    ``err`` gets the places searched, and a progress bar.
    """
    named = chosen.contenders(wanted.policies, (), (settings.policy, settings.paging.policy_options))
    contenders = [Contender(UNCHANGED), *(one for one in named if one.name != UNCHANGED)]
    how = analysis.prepare(contenders, ReplayConditions.of(settings, shortest=wanted.shortest))
    paths = _paths(wanted, settings, env, err)
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar(err))
        cache = ResultCache(Path(user_cache_dir("ctxpager")) / "analyze") if wanted.caches else None
        if cache:
            stack.callback(cache.close)
        counted = analysis.SessionFilter(wanted.shortest, wanted.since)
        found = analysis.analyze(paths, how, counted, jobs=wanted.jobs, cache=cache, progress=progress)
    return found, setups(found.sessions, _base(settings))


def kept_warm(found: analysis.Analysis, settings: Settings) -> warm_estimate.WarmEstimate:
    """What keeping warm would have changed in the latest of the sessions that were found."""
    latest = sorted(found.sessions, key=lambda one: -one.session.last)[: warm_estimate.MOST]
    recordings = warm_estimate.of_files(dict.fromkeys(one.path for one in latest))
    return warm_estimate.of_settings(recordings, settings, warm_estimate.IN_PASSING)


def _paths(wanted: AnalyzeOptions, settings: Settings, env: Mapping[str, str], err: TextIO) -> Sequence[Path]:
    """Where to look: where the user says, else in the usual places."""
    if wanted.paths:
        for path in wanted.paths:
            if not path.exists():
                raise ConfigError(f"{path}: there is no such file or folder")
        return wanted.paths
    places = usual_places(Location(settings.store_url).folder or settings.data_dir, env, Path.home())
    there = [place for place in places if place.is_dir()]
    if not there:
        names = ", ".join(map(str, places))
        raise ConfigError(f"there are no logs in the usual places ({names}); name files or folders to analyse")
    searched = (f"searched {place}{'' if place in there else ': not there'}\n" for place in places)
    err.writelines(map(harmless, searched))
    return there


def _base(settings: Settings) -> str:
    """The address of the proxy as these settings have it."""
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{name}:{settings.port}"


@contextmanager
def progress_bar(out: TextIO) -> Iterator[ProgressReport]:
    """A bar of bytes done, which is gone at the end; none where nobody is looking.

    It is drawn at each report of progress, and not by a thread of its own, as processes are forked meanwhile.
    """
    if not out.isatty():
        yield analysis.no_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(file=out), auto_refresh=False, transient=True)
    task = progress.add_task("reading logs", total=None)

    def show(done: int, size: int) -> None:
        progress.update(task, completed=done, total=size)
        progress.refresh()

    with progress:
        yield show
