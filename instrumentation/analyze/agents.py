"""Where the logs of agents are, and how their agents are pointed at the proxy, as the importers know it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from instrumentation.analyze.analysis import FoundSession
from instrumentation.replay import importers

_WITHOUT_LOGS = {
    "qwen": "OPENAI_BASE_URL={base}/v1 qwen --auth-type openai",
    "goose": "OPENAI_HOST={base} OPENAI_BASE_PATH=v1/chat/completions goose",
}
"""Set-ups of agents whose own logs can't be read: their sessions are known from recordings."""

_ANY = "base_url = {base}/v1 in any OpenAI client, {base} in any of Anthropic's"


def usual_places(data_dir: Path, env: Mapping[str, str], home: Path) -> list[Path]:
    """The folders in which agents keep their logs, and that of our own log, whether they exist or not."""
    return [*(place for one in importers.found().values() for place in one.places(env, home)), data_dir]


def setups(sessions: Sequence[FoundSession], base: str) -> list[str]:
    """How to point the agents of these sessions at a proxy, that with most calls first; any, if none is known."""
    known = {one.agent: one.setup for one in importers.found().values() if one.agent} | _WITHOUT_LOGS
    calls = dict.fromkeys(known, 0)
    for found in sessions:
        name = (found.session.harness or found.format).lower()
        agent = next((agent for agent in known if name.startswith(agent)), None)
        if agent:
            calls[agent] += found.session.totals.calls
    seen = sorted((agent for agent in known if calls[agent]), key=lambda agent: (-calls[agent], agent))
    return [known[agent].format(base=base) for agent in seen] or [_ANY.format(base=base)]
