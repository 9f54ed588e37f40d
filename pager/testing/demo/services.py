"""The services of the invented harbour: a module of code for each, made from one pattern, and the harbour's rules."""

from typing import NamedTuple


class Service(NamedTuple):
    """What a boat can order: its name, what it is counted in, and its price as the code has it."""

    name: str
    unit: str
    price: str

    @property
    def path(self) -> str:
        """Where its module is."""
        return f"harbour/services/{self.name}.py"

    @property
    def in_floats(self) -> str:
        """The lines of code that are to be changed."""
        return f"{_IMPORTS}\nPRICE = {self.price}  # per {self.unit}\n"

    @property
    def in_decimals(self) -> str:
        """The same lines, exact to the cent."""
        return f'{_IMPORTS}from decimal import Decimal\n\nPRICE = Decimal("{self.price}")  # per {self.unit}\n'


_IMPORTS = "from datetime import date, datetime, timedelta\n"
SERVICES = [
    Service(*words.split())
    for words in (
        "berths metre 2.15",
        "moorings night 9.40",
        "cranes lift 85.50",
        "fuel litre 1.89",
        "water cubic-metre 6.20",
        "electricity hour 0.45",
        "waste bag 3.10",
        "laundry load 4.75",
        "parking day 8.00",
        "storage month 41.60",
        "slipway hour 22.30",
        "tugs hour 140.00",
        "pilots trip 95.25",
        "customs form 12.90",
        "permits year 60.00",
        "lockers month 7.35",
        "repairs hour 58.80",
        "divers dive 115.00",
        "cleaning hour 34.15",
        "painting square-metre 17.45",
        "charts sheet 28.90",
        "radio check 15.00",
        "insurance day 2.65",
        "weather report 0.80",
        "guides tour 45.50",
        "bicycles day 11.20",
        "saunas hour 14.40",
        "showers token 1.25",
        "internet day 3.95",
        "ice block 2.40",
    )
]

_MODULE = '''"""{Name}: what boats order of it, and what that costs them."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

PRICE = {price}  # per {unit}
SMALLEST_ORDER = {smallest}
LONGEST_WAIT = timedelta(minutes={wait})
FREE_FOR_MEMBERS = {free}


@dataclass(frozen=True)
class {Class}Order:
    """One order of {name}, as the desk wrote it down."""

    boat: str
    berth: str
    ordered: datetime
    quantity: int
    member: bool = False
    cancelled: datetime | None = None
    note: str = ""

    @property
    def is_open(self) -> bool:
        return self.cancelled is None


def amount(order: {Class}Order) -> float:
    """What an order of {name} costs: at least {smallest} {unit}, {free} free for members."""
    if not order.is_open:
        return 0
    charged = max(SMALLEST_ORDER, order.quantity)
    if order.member:
        charged = max(0, charged - FREE_FOR_MEMBERS)
    return charged * PRICE


def is_late(order: {Class}Order, served: datetime) -> bool:
    """Whether the boat waited longer for {name} than the harbour promises; then it pays half."""
    return served - order.ordered > LONGEST_WAIT


def cancel(order: {Class}Order, at: datetime) -> {Class}Order:
    """The order, cancelled; an order of {name} that was served can't be."""
    if at - order.ordered > LONGEST_WAIT:
        raise ValueError(f"{{order.boat}}: {name} ordered at {{order.ordered:%H:%M}} can't be cancelled any more")
    return {Class}Order(order.boat, order.berth, order.ordered, order.quantity, order.member, at, order.note)


def of_day(orders: list[{Class}Order], day: date) -> list[{Class}Order]:
    """The open orders of {name} on one day, by berth, as they hang at the desk."""
    found = [order for order in orders if order.ordered.date() == day and order.is_open]
    return sorted(found, key=lambda order: (order.berth, order.ordered))


def by_boat(orders: list[{Class}Order]) -> dict[str, int]:
    """How many {unit} of {name} each boat has ordered."""
    found: dict[str, int] = {{}}
    for order in orders:
        if order.is_open:
            found[order.boat] = found.get(order.boat, 0) + order.quantity
    return found


def busiest_hour(orders: list[{Class}Order]) -> int:
    """The hour of the day in which most of {name} is ordered; the desk opens at {opens}."""
    hours = [0] * 24
    for order in orders:
        hours[max({opens}, order.ordered.hour)] += order.quantity
    return hours.index(max(hours))


def as_text(order: {Class}Order) -> str:
    """One line for the invoice."""
    note = f" ({{order.note}})" if order.note else ""
    return f"{Name}: {{order.quantity}} {unit}{{note}}, berth {{order.berth}}, {{order.ordered:%d.%m.}}"


def check(order: {Class}Order) -> list[str]:
    """What is wrong with an order of {name}, in words that the skipper understands."""
    found = []
    if order.quantity <= 0:
        found.append("{name}: nothing was ordered")
    if order.quantity > {most}:
        found.append("{name}: more than {most} {unit} need a word with the harbour master")
    if order.ordered.hour < {opens}:
        found.append("{name}: the desk opens at {opens}")
    return found
'''


def module(at: int) -> str:
    """The code of a service, by its place among them."""
    name, unit, price = SERVICES[at]
    return _MODULE.format(
        name=name,
        Name=name.capitalize(),
        Class=name.capitalize(),
        unit=unit,
        price=price,
        smallest=1 + at % 3,
        wait=15 * (1 + at % 5),
        free=at % 2,
        opens=6 + at % 3,
        most=20 + 5 * at,
    )


def rules() -> str:
    """The rules of the harbour, a section for each service."""
    sections = [
        f"## {at}. {name.capitalize()}\n\n"
        f"{name.capitalize()} costs {price} euros per {unit}. The desk takes orders from {6 + at % 3} o'clock on. "
        f"A boat that waits longer than {15 * (1 + at % 5)} minutes for {name} pays half. "
        f"Members may be granted one {unit} free."
        for at, (name, unit, price) in enumerate(SERVICES)
    ]
    rounding = (
        "## 30. Amounts\n\nAmounts are exact decimals, never binary fractions. Half a cent is rounded up, once for "
        "each line of an invoice and never on the sum, so that every line can be explained at the desk."
    )
    return "\n\n".join(["# Rules of the harbour", *sections, rounding]) + "\n"
