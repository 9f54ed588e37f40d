"""What the settings say about planning: the one place where they become what serve, replay, explain and analyze use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from pager.config.settings import Settings
from pager.paging.credit import CreditLimits
from pager.paging.pages.page import GRACE
from pager.paging.tool_forms_of_call import Shortening
from pager.paging.warmth.choose_lifetime import NO_MEMBERS, CacheMembers, LifetimeRule
from pager.pricing.rates import Models, in_force

OPENAI = "api.openai.com"


def _cache_members(settings: Settings) -> CacheMembers:
    paging, upstream = settings.paging, settings.upstream
    ours = all(urlsplit(upstream.base(name)).hostname == OPENAI for name in ("chat", "responses"))
    key = paging.prompt_cache_key == "on" or (paging.prompt_cache_key == "auto" and ours)
    return CacheMembers(key, paging.prompt_cache_retention)


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """What calls are planned under, whatever the session."""

    prices: str = ""  # the setting `prices`
    models: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # the setting `models`
    grace: int = GRACE  # the calls that a new page stays for
    tools: Shortening = field(default_factory=Shortening)
    policy: str = ""  # the policy in force
    policy_options: Mapping[str, object] = field(default_factory=dict)  # of the policy in force
    cache_marks: bool = True  # whether we set cache marks
    cache_members: CacheMembers = NO_MEMBERS  # which members of ours choose a cache
    credit: CreditLimits | None = None  # the limits of the user's account; None where each session pays for itself
    cache_lifetime: LifetimeRule = "5m"  # what cache marks ask for that name no lifetime

    @classmethod
    def of(cls, settings: Settings, **others: Any) -> Self:  # noqa: ANN401 - the fields of a subclass
        """The rules that these settings describe; ``others`` are fields that no setting has."""
        paging, tools, credit = settings.paging, settings.tools, settings.credit
        return cls(
            prices=settings.prices,
            models=settings.models,
            grace=paging.grace,
            tools=Shortening(tools.shorten != "off", tools.defer_above),
            policy=settings.policy,
            policy_options=paging.policy_options,
            cache_marks=paging.cache_marks,
            cache_members=_cache_members(settings),
            credit=CreditLimits(**credit.model_dump()) if paging.thrift == "user" else None,
            cache_lifetime=paging.cache_lifetime,
            **others,
        )

    def rates(self) -> Models:
        """The table of models with the prices in force."""
        return in_force(self.prices, self.models)

    def options_of(self, policy: str) -> Mapping[str, object]:
        """The configured options, if this policy is the one in force; else none."""
        return self.policy_options if policy == self.policy else {}
