"""The invented project of the demo: its files, kept in memory, and the tools that an agent has for them."""

import re
from collections.abc import Callable, Mapping

from pager.testing.demo.services import SERVICES, Service, module, rules

BILLING = '''"""Invoices for boats that stayed in the harbour."""

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

from harbour.stays import Stay, hours_connected, nights
from harbour.tariffs import Tariff, tariff_for

CENT = Decimal("0.01")
ELECTRICITY_PER_HOUR = Decimal("0.45")
LATE_FEE = Decimal("12.50")
LATE_AFTER_HOUR = 21


@dataclass(frozen=True)
class Line:
    """One line of an invoice."""

    text: str
    quantity: int
    price: Decimal

    @property
    def total(self) -> Decimal:
        return (self.price * self.quantity).quantize(CENT, ROUND_HALF_UP)


@dataclass(frozen=True)
class Invoice:
    """What a stay costs, line by line."""

    boat: str
    issued: datetime
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        return sum((line.total for line in self.lines), Decimal(0))


def invoice(stay: Stay, issued: datetime) -> Invoice:
    """The invoice for a stay; every line can be explained to the skipper at the desk."""
    tariff = tariff_for(stay.length_m, stay.arrived)
    lines = [berth_line(stay, tariff), *electricity_lines(stay), *late_lines(stay), *discount_lines(stay, tariff)]
    return Invoice(stay.boat, issued, tuple(lines))


def berth_line(stay: Stay, tariff: Tariff) -> Line:
    return Line(f"Berth {stay.berth}, class {tariff.name}", nights(stay), tariff.per_night)


def electricity_lines(stay: Stay) -> list[Line]:
    hours = hours_connected(stay)
    return [Line("Electricity, per hour", hours, ELECTRICITY_PER_HOUR)] if hours else []


def late_lines(stay: Stay) -> list[Line]:
    late = stay.arrived.hour >= LATE_AFTER_HOUR and not stay.announced
    return [Line("Late arrival, not announced", 1, LATE_FEE)] if late else []


def discount_lines(stay: Stay, tariff: Tariff) -> list[Line]:
    """Every seventh night is free for members, every tenth for all others."""
    every = 7 if stay.member else 10
    free = nights(stay) // every
    return [Line(f"Every {every}th night is free", free, -tariff.per_night)] if free else []


def as_text(made: Invoice) -> str:
    """The invoice as it is printed at the desk."""
    width = max(len(line.text) for line in made.lines)
    rows = [f"{line.text:<{width}}  {line.quantity:>4} x {line.price:>8}  {line.total:>9}" for line in made.lines]
    head = f"Invoice for {made.boat}, {made.issued:%d %B %Y}"
    foot = f"{'Total':<{width}}  {'':>4}   {'':>8}  {made.total:>9}"
    return "\\n".join([head, "-" * len(head), *rows, foot])
'''

STAYS = '''"""Stays: when a boat came, when it left, and what follows from that."""

from dataclasses import dataclass
from datetime import datetime, timedelta

DAY = timedelta(hours=24)
HOUR = timedelta(hours=1)
DAY_GUEST_LIMIT = timedelta(hours=6)


@dataclass(frozen=True)
class Stay:
    """A boat in a berth, from arrival to departure (local time of the harbour)."""

    boat: str
    berth: str
    length_m: float
    arrived: datetime
    left: datetime
    member: bool = False
    announced: bool = True
    plugged_in: datetime | None = None
    unplugged: datetime | None = None

    @property
    def duration(self) -> timedelta:
        return self.left - self.arrived


def nights(stay: Stay) -> int:
    """How many nights are charged for a stay."""
    if is_day_guest(stay):
        return 0
    return stay.duration // DAY


def is_day_guest(stay: Stay) -> bool:
    """Day guests come and go on the same day, within the limit, and pay no berth."""
    same_day = stay.arrived.date() == stay.left.date()
    return same_day and stay.duration <= DAY_GUEST_LIMIT


def hours_connected(stay: Stay) -> int:
    """Started hours on shore power; a cable that was never unplugged counts until departure."""
    if stay.plugged_in is None:
        return 0
    until = stay.unplugged or stay.left
    return -(-(until - stay.plugged_in) // HOUR)


def overlaps(one: Stay, other: Stay) -> bool:
    """Whether two stays claim the same berth at the same time."""
    return one.berth == other.berth and one.arrived < other.left and other.arrived < one.left


def occupied(stays: list[Stay], at: datetime) -> dict[str, str]:
    """The boat in each berth at a moment."""
    return {stay.berth: stay.boat for stay in stays if stay.arrived <= at < stay.left}
'''

TARIFFS = '''"""What a night costs, by the length of the boat and the month of arrival."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True)
class Tariff:
    """The price of a night for boats up to a length, in one month."""

    name: str
    up_to_m: float
    month: int
    per_night: Decimal


ALL = [
ROWS
]


def tariff_for(length_m: float, arrived: datetime) -> Tariff:
    """The cheapest tariff that the boat fits into."""
    fitting = [tariff for tariff in ALL if tariff.month == arrived.month and tariff.up_to_m >= length_m]
    return min(fitting, key=lambda tariff: tariff.up_to_m)
'''

BUG = "    return stay.duration // DAY\n"
FIRST_TRY = "    return -(-stay.duration // DAY)\n"
FIXED = "    return max(1, (stay.left.date() - stay.arrived.date()).days)\n"

_CASES = [
    ("a_day_guest_pays_no_berth", True, True),
    ("one_night_is_charged_from_evening_to_morning", False, True),
    ("two_nights_over_a_weekend", False, True),
    ("a_late_departure_is_no_further_night", True, False),
    ("a_same_day_stay_above_the_limit_is_one_night", False, True),
    ("every_seventh_night_is_free_for_members", True, True),
    ("every_tenth_night_is_free_for_others", True, True),
    ("electricity_is_charged_by_started_hours", True, True),
    ("a_late_arrival_that_was_announced_is_free", True, True),
    ("the_printed_invoice_adds_up", True, True),
]


def _tariffs() -> str:
    rows = [
        f'    Tariff("{size}{month:02d}", {8 + 4 * at}.0, {month}, Decimal("{_price(at, month)}.00")),'
        for at, size in enumerate("ABCD")
        for month in range(1, 13)
    ]
    return TARIFFS.replace("ROWS", "\n".join(rows))


def _price(size: int, month: int) -> int:
    return 11 + 6 * size + (9 if 5 <= month <= 9 else 0)


def _tests() -> str:
    head = '"""What the harbour office agreed on with the skippers."""\n\nfrom harbour.examples import charged, stay\n'
    body = [
        f"\n\ndef test_{name}():\n"
        f'    booked = stay("Seagull {at}", arrived="2026-07-{3 + at:02d} 18:30", left="2026-07-{4 + at:02d} 09:15")\n'
        f'    assert charged(booked) == {at % 4}, "see section {at + 1} of the harbour rules"\n'
        for at, (name, _, _) in enumerate(_CASES)
    ]
    return head + "".join(body)


class Project:
    """A small code base in memory."""

    def __init__(self) -> None:
        self.files = {
            "README.md": "# harbour\n\nBerths, stays and invoices of a small harbour. Run the tests with `pytest`.\n",
            "docs/rules.md": rules(),
            "harbour/billing.py": BILLING,
            "harbour/stays.py": STAYS,
            "harbour/tariffs.py": _tariffs(),
            "tests/test_billing.py": _tests(),
            **{service.path: module(at) for at, service in enumerate(SERVICES)},
        }

    def use(self, tool: str, arguments: Mapping[str, str]) -> str:
        """What a tool says, as an agent reads it."""
        tools: Mapping[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "grep": self._grep,
            "edit_file": self._edit_file,
            "run_tests": self._run_tests,
        }
        return tools[tool](**arguments)

    def _list_files(self) -> str:
        return "\n".join(f"{len(text):>6}  {path}" for path, text in sorted(self.files.items()))

    def _read_file(self, path: str) -> str:
        return "\n".join(f"{at:>4}  {line}" for at, line in enumerate(self.files[path].splitlines(), 1))

    def _grep(self, pattern: str) -> str:
        found = [
            f"{path}:{at}: {line}"
            for path, text in sorted(self.files.items())
            for at, line in enumerate(text.splitlines(), 1)
            if re.search(pattern, line)
        ]
        return "\n".join(found) or "no matches"

    def _edit_file(self, path: str, old: str, new: str) -> str:
        if self.files[path].count(old) != 1:
            return f"error: the text to replace occurs {self.files[path].count(old)} times in {path}"
        at = self.files[path][: self.files[path].index(old)].count("\n") + 1
        self.files[path] = self.files[path].replace(old, new)
        lines = [f"-{line}" for line in old.splitlines()] + [f"+{line}" for line in new.splitlines()]
        return "\n".join([f"edited {path}, line {at}", *lines])

    def _run_tests(self) -> str:
        """What the invented tests say of the version of ``nights`` that is in place."""
        stays = self.files["harbour/stays.py"]
        version = 0 if BUG in stays else 1 if FIRST_TRY in stays else 2
        passed = [(name, version == 2 or ok[version]) for name, *ok in _CASES]
        lines = [f"tests/test_billing.py::test_{name} {'PASSED' if ok else 'FAILED'}" for name, ok in passed]
        failures = [_failure(name) for name, ok in passed if not ok]
        services = [self._service_test(service) for service in SERVICES]
        good = len(passed) - len(failures) + len(services)
        return "\n".join([*lines, *services, *failures, f"{len(failures)} failed, {good} passed"])

    def _service_test(self, service: Service) -> str:
        exact = service.in_decimals in self.files[service.path]
        return f"tests/services/test_{service.name}.py::test_amount PASSED ({'exact' if exact else 'to the cent'})"


def _failure(name: str) -> str:
    return (
        f"_____ test_{name} _____\n"
        f"    assert charged(booked) == expected\n"
        f"E   AssertionError: see the harbour rules\n"
        f"harbour/billing.py:53: in berth_line\n"
        f"harbour/stays.py:32: in nights\n"
    )
