"""How many examples a law is tried with: a few in ``make test``, the same every time; many in ``make test-deep``."""

from hypothesis import HealthCheck, settings

LIGHT, DEEP = "light", "deep"
UNHURRIED = (HealthCheck.too_slow,)
"""How long an example takes says more about what else the machine does than about what is tested."""

settings.register_profile(LIGHT, max_examples=25, derandomize=True, deadline=None, suppress_health_check=UNHURRIED)
settings.register_profile(DEEP, max_examples=150, deadline=None, suppress_health_check=UNHURRIED, print_blob=True)


def examples(percent, *, tolerated=(), **options):
    """The settings of a law that is tried with this share of the profile's examples."""
    count = max(3, round(settings.default.max_examples * percent / 100))
    return settings(max_examples=count, suppress_health_check=[*UNHURRIED, *tolerated], **options)
