"""Which policy a session is under: the one that is configured, or that of its arm in an experiment.

A session is given to an arm by a hash of its id, so that every instance gives it to the same one without asking. The
arm is logged with the session and holds to its end, whatever is configured later.
"""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from pager.paging.policy import Policy

UNCHANGED = "keep_all"
"""The policy under which every request goes out as it came."""


WARM, COLD = "+warm", "+cold"
"""Behind the policy of an arm: its prompts are kept warm in pauses, or are not, whatever is configured."""


class NamedPolicy(NamedTuple):
    """A policy under the name by which it is known, and whether prompts of its sessions are kept warm.

    ``keep_warm`` is None where that is as it is configured.
    """

    name: str
    policy: Policy
    keep_warm: bool | None = None


def policy_of_arm(arm: str) -> str:
    """The name of an arm's policy."""
    return arm.removesuffix(WARM).removesuffix(COLD)


def keeps_warm(arm: str) -> bool | None:
    """Whether an arm keeps prompts warm; None where its name does not say."""
    return True if arm.endswith(WARM) else False if arm.endswith(COLD) else None


@dataclass(frozen=True, slots=True)
class Arms:
    """The policy in force, and those of an experiment by their shares; None where nothing is ever to be changed.

    ``load`` gives the policy of an arm that is not configured any more, by its name.
    """

    default: NamedPolicy | None
    rules: MutableMapping[str, NamedPolicy | None] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    load: Callable[[str], NamedPolicy | None] | None = None

    @property
    def change_nothing(self) -> bool:
        """Whether no session would ever be changed."""
        return self.default is None and not any(self.rules.values())

    def arm(self, session: str) -> str:
        """The arm of a new session; empty where there is no experiment."""
        names = sorted(self.shares)
        point = int.from_bytes(sha256(f"arm\0{session}".encode()).digest()[:8]) / 2**64 * sum(self.shares.values())
        for name in names:
            point -= self.shares[name]
            if point < 0:
                return name
        return names[-1] if names else ""  # where the last share is lost in rounding

    def rule(self, arm: str) -> NamedPolicy | None:
        """The policy of an arm, also of one that is not configured any more: a session stays under it to its end."""
        if not arm:
            return self.default
        if arm not in self.rules:
            self.rules[arm] = self.load(arm) if self.load else self.default
        return self.rules[arm]
