"""Write numbers with meaningful digits and units, lists of names, and names of files."""

import math
import re
import zlib
from collections.abc import Sequence

from milbench._utils.words import counted as counted  # noqa: PLC0414 used by the report
from milbench._utils.words import readable as readable  # noqa: PLC0414 used by the report
from milbench.contracts.metric_info import Metric

NOTHING = "—"
"""The text of a cell of a table that has no value."""
MOST_NAMED = 6
"""The largest number of losses or tasks that a sentence names."""

_WORDS = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip
_LONGEST_SLUG = 80
"""The largest number of letters in the name of a file."""
_KEPT_OF_SLUG = 71
"""How many letters are kept of a slug that is too long: a hyphen and eight digits follow."""


def measured(mean: float, spread: float, metric: Metric) -> str:
    """Return a mean with its spread, such as 0.52 ± 0.04, with as many digits as `decimals` says.

    A spread that is nan is left out.
    """
    digits = decimals(mean, spread, metric)
    text = number(mean, digits, metric)
    if math.isnan(spread):
        return text
    if spread == 0:
        # 0.000 would claim that the spread is known to three decimals.
        return f"{text} ± 0"
    return f"{text} ± {number(spread, digits, metric)}"


def interval(bounds: tuple[float, float], mean: float, metric: Metric, signed: bool = False) -> str:
    """Return an interval, such as 0.48 to 0.57, with the digits that suit its half width."""
    low, high = bounds
    if math.isnan(low) or math.isnan(high):
        return NOTHING
    # Rounding makes the half width of an interval of one point exactly 0.
    half = round((high - low) / 2, 9)
    digits = decimals(mean, half, metric)
    return f"{number(low, digits, metric, signed)} to {number(high, digits, metric, signed)}"


def decimals(mean: float, spread: float, metric: Metric) -> int:
    """Return how many decimals of a value are meaningful.

    The spread is written with one digit, or with two if the first of them is a 1. The value has as
    many decimals as its spread. If the spread is nan or zero, the size of the value decides.
    """
    if not math.isfinite(spread) or spread <= 0:
        return _decimals_by_size(mean, metric)
    shown = scaled(spread, metric)
    exponent = math.floor(math.log10(shown))
    leading = shown / 10.0**exponent
    digits = -exponent
    # A leading 1 gets a second digit. From 1.95 on it would be rounded to 2.0.
    if leading < 1.95:
        digits += 1
    most = 3 if metric.percent else 4
    return min(most, max(0, digits))


def _decimals_by_size(mean: float, metric: Metric) -> int:
    """Return the decimals of a value without a spread."""
    if not metric.percent:
        return 3
    return 1 if abs(scaled(mean, metric)) >= 10 else 2


def number(value: float, digits: int, metric: Metric, signed: bool = False) -> str:
    """Return a value in the metric's unit, but without "%"; nan is a dash.

    With `signed`, positive values have a plus sign.
    """
    if math.isnan(value):
        return NOTHING
    text = f"{scaled(value, metric):.{digits}f}"
    # A value that is rounded to zero has no sign.
    if float(text) == 0:
        return text.removeprefix("-")
    if text.startswith("-"):
        return text.replace("-", "−")
    return f"+{text}" if signed else text


def scaled(value: float, metric: Metric) -> float:
    """Return a value in the unit in which the metric is written: a share as a percentage."""
    return value * 100.0 if metric.percent else value


def with_unit(value: float, metric: Metric) -> str:
    """Return a value with two significant digits and its unit, such as 1.6 %."""
    # The first format rounds to two digits, the second one leaves out zeros at the end.
    rounded = float(f"{scaled(value, metric):.2g}")
    unit = " %" if metric.percent else ""
    return f"{rounded:g}{unit}"


def at_most(value: float, metric: Metric) -> str:
    """Return an upper bound in the metric's unit, but without "%", rounded up to two digits.

    A share of 0.0204 becomes 2.1.
    """
    if value <= 0:
        return "0"
    if not math.isfinite(value):
        return NOTHING
    shown = scaled(value, metric)
    digits = 1 - math.floor(math.log10(shown))
    # Without the small number, a rounding error of floating point would be rounded up.
    rounded_up = math.ceil(shown * 10.0**digits - 1e-6) / 10.0**digits
    return f"{rounded_up:g}"


def significant(value: float) -> str:
    """Return a value with three significant digits and no exponent, "—" where it isn't finite."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return NOTHING
    # Rounded first: 999.6 becomes 1000, which needs one decimal less.
    rounded = float(f"{value:.3g}")
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, digits)}f}"


def number_word(count: int) -> str:
    """Return a count up to twelve as a word, such as three, a larger one in digits."""
    return _WORDS[count] if count < len(_WORDS) else str(count)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names as a part of a sentence, such as "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def first_few(names: Sequence[str]) -> str:
    """Return the first MOST_NAMED names as a part of a sentence, and how many more there are."""
    further = len(names) - MOST_NAMED
    if further <= 0:
        return listed(names)
    return listed([*names[:MOST_NAMED], f"{further} more"])


def slug(text: str) -> str:
    """Return a name for a file, of ASCII letters, digits and hyphens.

    The name ends with a digest of the text if it is shortened, or if different texts could have
    this name: those with letters that are not ASCII, or with signs of numbers.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    has_signs = re.search(r"=\S*[-+]", text) is not None
    is_lossy = not name or not text.isascii() or has_signs or len(name) > _LONGEST_SLUG
    if not is_lossy:
        return name
    digest = f"{zlib.crc32(text.encode()):08x}"
    return f"{name[:_KEPT_OF_SLUG]}-{digest}".strip("-")
