"""What can be set: the pydantic models that are the only list of settings.

Variables, flags, messages, the printed configuration, the example file and docs/config.md are all derived from these
models, so that none can fall behind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Literal, TypeGuard
from urllib.parse import urlsplit

from platformdirs import user_data_dir
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

from pager.host_names import is_loopback

PRICE_LISTS = frozenset({"", "anthropic", "claude-5.5", "claude-fable-5.1", "gpt-5.6", "openai", "none"})


@dataclass(frozen=True, slots=True)
class TrustGuard:
    """When a setting of a working folder's file counts only once the user trusts the folder; in words, empty if never.

    It must be guarded where it can run code, lead calls elsewhere, or open the proxy, its data or its keys to others.
    """

    is_safe: Callable[[object], bool]
    words: str


def _is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _names_no_code(value: object) -> bool:
    names = [value] if isinstance(value, str) else value if _is_table(value) else ()
    return not any(":" in name for name in names)


def _has_only_numbers(value: object) -> bool:
    return not _is_table(value) or all(isinstance(item, bool | int | float) for item in value.values())


def _names_no_code_and_nothing_warm(value: object) -> bool:
    names = value if _is_table(value) else ()
    return _names_no_code(value) and not any(name.endswith("+warm") for name in names)


GUARDED = TrustGuard(lambda _: False, "needs trust")
HARMLESS = TrustGuard(lambda _: True, "")
NO_CODE = TrustGuard(_names_no_code, "needs trust where it names code of one's own")
NO_CODE_OR_WARMTH = TrustGuard(
    _names_no_code_and_nothing_warm, "needs trust where it names code of one's own, or an arm that is kept warm"
)
NUMBERS = TrustGuard(_has_only_numbers, "needs trust where it has more than numbers and switches")  # text may be a path
NO_FILE = TrustGuard(lambda value: not isinstance(value, str) or value in PRICE_LISTS, "needs trust where it is a path")
NOT_ALWAYS = TrustGuard(lambda value: value != "always", 'needs trust to be "always"')


@dataclass(frozen=True, slots=True)
class Notes:
    """A setting in words: what it allows, its default where machines differ; a private one's value is never shown.

    A new setting is guarded in a working folder's file until it says that it need not be.
    """

    allowed: str
    default: str = ""
    private: bool = False
    guard: TrustGuard = GUARDED


def _address(value: str) -> str:
    parts = urlsplit(value)
    plain = value.isprintable() and " " not in value and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not plain or parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("not a base URL")
    return value.rstrip("/")


def _address_or_none(value: str) -> str:
    return _address(value) if value else value


def _folder(value: object) -> object:
    if not isinstance(value, str):
        return value
    # Text that is not Unicode can't be printed or written to a TOML file; encoding it raises a ValueError.
    if not value.strip() or b"\0" in value.encode():
        raise ValueError("no folder")
    return Path(expanduser(value))  # noqa: PTH111 - pathlib's raises for an unknown user


def _distinct(keys: Mapping[str, str]) -> Mapping[str, str]:
    if len(set(keys.values())) < len(keys):
        raise ValueError("two tenants share a variable")
    return keys


def _default_data_dir() -> Path:
    return Path(user_data_dir("ctxpager"))


_HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_A_URL = "a base URL up to and including /v1, such as https://host/v1, without credentials, query or fragment"
_A_VARIABLE = "the name of an environment variable (letters, digits, _), never the key itself"
Name = Annotated[str, Field(min_length=1)]
Address = Annotated[str, AfterValidator(_address), Notes(_A_URL)]
Seconds = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False), Notes("seconds, more than 0", guard=HARMLESS)]
Share = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
Header = Annotated[str, Field(pattern=_HEADER), AfterValidator(str.lower)]
Variable = Annotated[str, Field(pattern=_VARIABLE)]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$"), AfterValidator(str.lower)]
Origin = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*://[^\s/*]*$"), AfterValidator(str.lower)]
TenantKeys = Annotated[Mapping[Name, Variable], AfterValidator(_distinct)]


class _SettingsPart(BaseModel):
    # Inputs are hidden because a mistaken value may be a secret; our own messages decide what is shown.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class UpstreamSettings(_SettingsPart):
    """Where calls go."""

    url: Annotated[str, AfterValidator(_address_or_none), Notes(f'"" or {_A_URL}')] = Field(
        default="",
        description="One base URL for all dialects; where set, it replaces the keys below. Empty, "
        "because most users have clients of more than one provider.",
    )
    chat: Address = Field(
        default="https://api.openai.com/v1",
        description="Base URL for Chat Completions. The provider that defined the format.",
    )
    responses: Address = Field(
        default="https://api.openai.com/v1",
        description="Base URL for Responses. The provider that defined the format.",
    )
    messages: Address = Field(
        default="https://api.anthropic.com/v1",
        description="Base URL for Messages. The provider that defined the format.",
    )
    api_key_env: Annotated[str, Field(pattern=rf"^$|{_VARIABLE}"), Notes(f'"" or {_A_VARIABLE}', private=True)] = Field(
        default="",
        description="The environment variable with a key of the proxy's own, sent instead of the client's. Empty: "
        "each client's own credential is passed on, so that the proxy holds no secret.",
    )
    connect_timeout: Seconds = Field(
        default=10.0,
        description="Seconds to wait for a connection. 10 leaves room for a slow network and still fails before a user "
        "gives up.",
    )
    read_timeout: Seconds = Field(
        default=600.0,
        description="Seconds of silence allowed between two bytes of an answer. Models may think for minutes before "
        "the first byte; 600 is what the providers' own clients allow.",
    )
    max_connections: Annotated[
        int, Strict(), Field(ge=0), Notes("a whole number, 0 or more; 0 is no limit", guard=HARMLESS)
    ] = Field(
        default=0,
        description="Connections open to upstream at once. No limit, because a limit makes calls wait behind other "
        "calls' long streams, as they would not without the proxy; the provider has rate limits of its own.",
    )

    leg_retries: Annotated[int, Strict(), Field(ge=0), Notes("a whole number, 0 or more")] = Field(
        default=6,
        description="How often hidden requests of one answer are sent again after a rate limit, an overload, a server "
        "error or a broken connection. The client, which knows nothing of them, can't do that itself; 6 is what "
        "patient clients allow. All other requests are the client's to repeat.",
    )
    leg_retry_seconds: Seconds = Field(
        default=60.0,
        description="Seconds after the first such failure in which another try may begin; a longer `retry-after` is "
        "not waited for. Some clients give up, or send a call again, after 120 seconds.",
    )

    def base(self, dialect: str, default: str = "") -> str:
        """The base URL for a dialect by its name; ``default`` for one without a key of its own."""
        return self.url or str(getattr(self, dialect, default))


class IdentitySettings(_SettingsPart):
    """Who a call belongs to."""

    account_headers: Annotated[tuple[Header, ...], Notes('a list of header names, such as ["x-account"]')] = Field(
        default=("chatgpt-account-id", "openai-organization"),
        description="Headers that name the client's account, best first; the first one present is the tenant where "
        "the proxy has no keys of its own and listens on a loopback address; elsewhere anybody could send them. These "
        "two are what current clients send.",
    )
    hot_sessions: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more", guard=HARMLESS)] = Field(
        default=1000,
        description="How many sessions are kept hot in memory. The others are rebuilt from the log when they come "
        "back; 1,000 is far more than one user has open and still bounds the memory.",
    )
    keys: Annotated[TenantKeys, Notes(f"a table of tenant name to {_A_VARIABLE}; each variable once", private=True)] = (
        Field(
            default_factory=dict,
            description="Keys that clients must present to the proxy: tenant name to the environment variable that "
            "holds that tenant's key; a call's tenant is then the name of its key. Empty: a proxy on "
            "one's own machine asks for no key.",
            examples=['team-a = "TEAM_A_PROXY_KEY"'],
        )
    )


class PagingSettings(_SettingsPart):
    """How prompts are paged; nothing of it matters under keep_all, which changes no request."""

    cache_marks: Annotated[bool, Strict(), Notes("true or false", guard=HARMLESS)] = Field(
        default=True,
        description="Set cache_control marks in requests of Anthropic clients: those that the client leaves free, "
        "where a later eviction would begin; and all that is needed where the client sets none. On, because such a "
        "provider finds only what ends at a mark, and an eviction elsewhere pays for the whole prompt.",
    )
    cache_lifetime: Annotated[Literal["auto", "5m", "1h"], Notes('"auto", "5m" or "1h"', guard=HARMLESS)] = Field(
        default="5m",
        description="How long prompts are cached where an Anthropic client's cache_control marks name no ttl, or where "
        "it sets none and ours are used. 5m leaves them the five minutes that they get, which cost least on recorded "
        "sessions. 1h asks for an hour. auto asks for an hour where the session's own pauses let that cost much less, "
        "at moments when the whole prompt is written anyway, and never where prompts are kept warm. A ttl that the "
        "client names stays; where an hour is not granted, the session goes back to five minutes.",
    )
    grace: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more", guard=HARMLESS)] = Field(
        default=2,
        description="For how many calls a new result stays, whatever the policy wants. 2: the results since the last "
        "two answers, because most of what a model needs again it needs at once.",
    )
    prompt_cache_key: Annotated[Literal["auto", "on", "off"], Notes('"auto", "on" or "off"')] = Field(
        default="auto",
        description="Whether requests of OpenAI's formats get a prompt_cache_key of their conversation where the "
        "client sends none, so that its calls find the same cache. auto: only if the upstream is api.openai.com, "
        "because other servers may refuse members that they do not know.",
    )
    prompt_cache_retention: Annotated[Literal["", "24h"], Notes('"" or "24h"')] = Field(
        default="",
        description="What is asked of OpenAI as prompt_cache_retention where the client says nothing, for models that "
        "write to their cache at no extra price. Empty: nothing, because 24h has the provider keep data for longer.",
    )
    thrift: Annotated[Literal["user", "session"], Notes('"user" or "session"', guard=HARMLESS)] = Field(
        default="user",
        description="Whose savings pay for a change of a prompt that is still cached. user: those of all of the "
        "user's sessions, within the limits of [credit], so that a session without pauses can save as well. session: "
        "only those of the session itself, which then never costs more for such a change.",
    )
    policy_options: Annotated[Mapping[str, object], Notes("a table of the policy's own options", guard=NUMBERS)] = (
        Field(
            default_factory=dict,
            description="What the policy is built with, by the names in docs/policies.md. Empty: the policy's "
            "defaults.",
            examples=["age = 8"],
        )
    )


class ToolSettings(_SettingsPart):
    """How the client's tools are sent; nothing of it matters under keep_all, which changes no request."""

    shorten: Annotated[Literal["auto", "off"], Notes('"auto" or "off"', guard=HARMLESS)] = Field(
        default="auto",
        description="Whether tools that are hardly ever called are sent with shortened descriptions, or without "
        "their parameters, where that pays. auto, because most tools that a client offers are never called; calls of "
        "such a tool are checked against all of it before the client sees them. off sends every tool as it came.",
    )
    defer_above: Annotated[int, Strict(), Field(ge=0), Notes("a whole number of tokens, 0 or more", guard=HARMLESS)] = (
        Field(
            default=20_000,
            description="How many tokens all tools of a request must have before any may be sent without its "
            "parameters. 20,000 is more than coding agents bring themselves, and less than a large MCP server adds.",
        )
    )


class CreditSettings(_SettingsPart):
    """What a session may spend in advance of what it saves, under `paging.thrift = "user"`."""

    total_share: Annotated[float, Strict(), Field(ge=0, le=1), Notes("a share from 0 to 1", guard=HARMLESS)] = Field(
        default=0.01,
        description="How far all sessions of a user together may at most be above what they would have cost without "
        "ctxpager, as a share of that. 0.01: a hundredth, which the first savings cover.",
    )
    session_share: Annotated[float, Strict(), Field(ge=0, le=1), Notes("a share from 0 to 1", guard=HARMLESS)] = Field(
        default=0.05,
        description="How much one session may spend in advance, as a share of what it has cost by then. Results that "
        "the model asks for again afterwards are not limited by it.",
    )
    allowance: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), Notes("dollars, 0 or more")] = Field(
        default=0.25,
        description="What a new user's sessions may spend before anything was saved. 0 is nothing: the first savings "
        "then come from sessions with pauses.",
    )
    most: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), Notes("dollars, 0 or more")] = Field(
        default=1.0,
        description="What one session is lent at most, so that sessions that begin beside it find something. 0 lends "
        "nothing.",
    )


class KeepWarmSettings(_SettingsPart):
    """Whether prompts are kept in the provider's cache while a session pauses; every refresh is paid by the user."""

    mode: Annotated[Literal["off", "auto", "fixed"], Notes('"off", "auto" or "fixed"')] = Field(
        default="off",
        description="off sends nothing that no client asked for. auto sends the latest prompt of a resting session "
        "again, shortly before it would expire, while that is expected to cost less than writing it again. fixed does "
        "so `refreshes` times, `every` seconds, for prompts of at least `smallest` tokens. Off: it spends money.",
    )
    refreshes: Annotated[int, Strict(), Field(ge=0), Notes("a whole number, 0 or more")] = Field(
        default=2, description="How often a prompt is refreshed in one pause under `fixed`. 0 is never."
    )
    every: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False), Notes("seconds, more than 0")] = Field(
        default=280.0,
        description="The seconds between refreshes under `fixed`. 280 is just below a lifetime of five minutes; one "
        "that is no shorter than the lifetime refreshes nothing.",
    )
    smallest: Annotated[int, Strict(), Field(ge=0), Notes("a whole number of tokens, 0 or more")] = Field(
        default=20_000,
        description="The smallest prompt that is refreshed under `fixed`, in tokens. Smaller ones cost little.",
    )
    refresh_dollars: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), Notes("dollars, 0 or more")] = Field(
        default=0.5,
        description="What one refresh may cost at most. 0 is no refresh at all; 0.50 reads a million tokens of a "
        "large model.",
    )
    day_dollars: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), Notes("dollars, 0 or more")] = Field(
        default=20.0,
        description="What all refreshes of 24 hours may cost at most, since the proxy was started. 0 is no refresh at "
        "all.",
    )
    most: Annotated[int, Strict(), Field(ge=0), Notes("a whole number, 0 or more")] = Field(
        default=60,
        description="How many refreshes one pause may have. 0 is none at all; 60 keep five minutes for five hours.",
    )
    longest: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), Notes("seconds, 0 or more")] = Field(
        default=21_600.0,
        description="For how many seconds after its latest call a session is kept warm at most. 0 is not at all; "
        "21,600 are six hours: after a longer pause most users are gone for the day.",
    )
    subscriptions: Annotated[bool, Strict(), Notes("true or false")] = Field(
        default=False,
        description="Whether calls that are paid by a subscription are kept warm too. Off: there a refresh uses up "
        "limits and saves no money.",
    )


class ExperimentSettings(_SettingsPart):
    """Which share of the sessions is under which policy, to compare them."""

    arms: Annotated[
        Mapping[Name, Share],
        Notes(
            "a table of policies and their shares, numbers above 0, such as { cost_aware = 0.9, keep_all = 0.1 }",
            guard=NO_CODE_OR_WARMTH,
        ),
    ] = Field(
        default_factory=dict,
        description="Policies by name, with the share of new sessions that each is given, by a hash of its id; "
        "`ctxpager experiment` compares them. With +warm behind its name an arm's prompts are kept warm in pauses, by "
        "`keep_warm` or, where that is off, by `auto`; with +cold they are not. Empty: all are under `policy`.",
        examples=["cost_aware = 0.9", "keep_all = 0.1"],
    )


class DashboardSettings(_SettingsPart):
    """The page that shows sessions in a browser, at the proxy's own address."""

    show: Annotated[Literal["loopback", "always", "off"], Notes('"loopback", "always" or "off"', guard=NOT_ALWAYS)] = (
        Field(
            default="loopback",
            description="Where the dashboard is shown. loopback: only where the proxy listens on a loopback address, "
            "because it shows all sessions of all tenants to everybody who opens it. always shows it on any address, "
            "without the content of pages. Where it is not shown, its paths go upstream like any other.",
        )
    )

    def is_shown(self, host: str) -> bool:
        """Whether it is shown by a proxy that listens on this address."""
        return self.show == "always" or (self.show == "loopback" and is_loopback(host))


class LimitSettings(_SettingsPart):
    """What one client, or one answer, may take of the proxy; `max_body_mib` is the limit of request bodies."""

    headers: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more")] = Field(
        default=200,
        description="How many headers a request may have. Clients send about 30; each is kept until the call ends.",
    )
    head_kib: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more")] = Field(
        default=64,
        description="The largest head of a request (its first line and headers), in KiB. 64 is what providers' own "
        "front ends accept at most; a larger one gets a 431.",
    )
    head_seconds: Seconds = Field(
        default=30.0,
        description="Seconds that the head of a request may take from its first byte, or from the connection's "
        "beginning. Heads come in one piece; a client that sends a byte a second only blocks a connection.",
    )
    body_seconds: Seconds = Field(
        default=60.0,
        description="Seconds that a request's body may make no progress; over all of it, it must also bring 1 KiB a "
        "second. Then it gets a 408 and the connection is closed.",
    )
    answer_mib: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more")] = Field(
        default=64,
        description="How much of an answer is kept for the log, in MiB. The client gets all of any answer; one that is "
        "larger is logged without the rest, and the log says so. A stream of 128,000 tokens, the most that models "
        "write today, has about 40.",
    )


class Settings(_SettingsPart):
    """Everything that can be set."""

    host: Annotated[Name, Notes("a host name or an IP address")] = Field(
        default="127.0.0.1",
        description="The address to listen on. Loopback, so that nobody else on the network can use the proxy or read "
        "what is behind it.",
    )
    port: Annotated[
        int,
        Strict(),
        Field(ge=0, le=65535),
        Notes("a whole number from 0 to 65535; 0 takes a free port", guard=HARMLESS),
    ] = Field(default=8787, description="The port to listen on. A fixed one, because clients are configured with it.")
    allow_open_bind: Annotated[bool, Strict(), Notes("true or false")] = Field(
        default=False,
        description="Listen on an address that others reach though the proxy has no keys of its own. Off, because "
        "everybody who reaches it could then use it. Where it has a key of its own (upstream.api_key_env), it does not "
        "listen there without identity.keys, whatever this says.",
    )
    allowed_hosts: Annotated[tuple[HostName, ...], Notes('a list of host names, such as ["proxy.example"]')] = Field(
        default=(),
        description="Names by which clients may reach the proxy where it has no keys of its own, and browsers its "
        "dashboard, beside IP addresses, localhost, `host` and the names that containers have for their host. Empty: "
        "any other name may be that of a stranger's page which leads the browser here (DNS rebinding).",
    )
    allowed_origins: Annotated[
        tuple[Origin, ...], Notes('a list of origins, such as ["http://localhost:3000", "app://my-app"]')
    ] = Field(
        default=(),
        description="Pages and apps in browsers that may use the proxy, by what they send as Origin. Empty: requests "
        "without an Origin come from programs and pass; a page of somebody else's gets a 403.",
    )
    data_dir: Annotated[
        Path,
        BeforeValidator(_folder),
        Notes("a folder; ~ is the home folder", default="the platform's user data folder"),
    ] = Field(
        default_factory=_default_data_dir,
        description="The folder where state lives. The user's own data folder, so that a session outlives any "
        "checkout.",
    )
    store: Annotated[Name, Notes("sqlite:PATH, sqlite: for data_dir, or memory:")] = Field(
        default="sqlite:",
        description="The store that keeps the session log, by its URL. SQLite, because it is durable and needs nothing "
        "installed; PATH is a folder, or a file that ends in .sqlite3. A log in memory: ends with the proxy.",
    )
    policy: Annotated[
        Name,
        Notes(
            "the name of a policy, path/to/file.py:ClassName or an installed package.module:ClassName", guard=NO_CODE
        ),
    ] = Field(
        default="cost_aware",
        description="Which policy proposes what to evict. cost_aware evicts only what pays under the prices in force; "
        "under keep_all every request goes out as it came.",
    )
    learn: Annotated[Literal["daily", "off"], Notes('"daily" or "off"', guard=HARMLESS)] = Field(
        default="daily",
        description="Whether to learn once a day from the log's sessions which tools' results are needed again and how "
        "long sessions last, for the sessions that begin afterwards. off uses what is shipped, so that every session "
        "is decided as on a fresh install.",
    )
    prices: Annotated[
        str,
        Notes(
            '"", "anthropic", "claude-5.5", "claude-fable-5.1", "gpt-5.6", "openai", "none" or '
            "the path of a price file",
            guard=NO_FILE,
        ),
    ] = Field(
        default="",
        description="Whose price ratios and cache lifetime are in force. Empty: they follow from each call's model, "
        "as one proxy may serve clients of several providers.",
    )
    trust_clock_header: Annotated[bool, Strict(), Notes("true or false")] = Field(
        default=False,
        description="Take the time of a call from its header X-Pager-Now (unix seconds), for replays. Off, because a "
        "client must not be able to date its calls.",
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Notes('"debug", "info", "warning" or "error"', guard=HARMLESS)
    ] = Field(
        default="info",
        description="The least level of what is written to standard error. info shows where the proxy listens and "
        "every call that was sent unchanged because of an error in ctxpager, and is quiet otherwise.",
    )
    show_calls: Annotated[
        Literal["terminal", "always", "off"], Notes('"terminal", "always" or "off"', guard=HARMLESS)
    ] = Field(
        default="terminal",
        description="Whether `serve` prints a line for each call, and a summary when it is stopped. terminal: where "
        "standard output is one, so that logs of machines stay quiet.",
    )
    max_body_mib: Annotated[int, Strict(), Field(ge=1), Notes("a whole number, 1 or more", guard=HARMLESS)] = Field(
        default=64,
        description="The largest request body accepted, in MiB after decompression. A coding session reaches about 0.5 "
        "in 30 turns; 64 leaves room for images and bounds what one client can make the proxy hold in memory.",
    )
    limits: LimitSettings = Field(default_factory=LimitSettings)
    upstream: UpstreamSettings = Field(default_factory=UpstreamSettings)
    identity: IdentitySettings = Field(default_factory=IdentitySettings)
    paging: PagingSettings = Field(default_factory=PagingSettings)
    tools: ToolSettings = Field(default_factory=ToolSettings)
    credit: CreditSettings = Field(default_factory=CreditSettings)
    keep_warm: KeepWarmSettings = Field(default_factory=KeepWarmSettings)
    experiment: ExperimentSettings = Field(default_factory=ExperimentSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)
    models: Annotated[Mapping[Name, Mapping[str, object]], Notes("a table for each model name", guard=HARMLESS)] = (
        Field(
            default_factory=dict,
            description="Facts about models that replace those of the shipped table: window, output limit and prices, "
            "by model name. Empty: the shipped table knows the public models.",
            examples=['"my-model" = { window = 200000, output_limit = 32000 }'],
        )
    )

    @property
    def store_url(self) -> str:
        """The URL of the store; one without an address of its own keeps the log in ``data_dir``."""
        scheme, _, address = self.store.partition(":")
        return f"{scheme}:{address or self.data_dir}"
