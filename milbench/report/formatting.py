"""Numbers as text, with meaningful digits and units."""

import math
import re
import zlib
from collections.abc import Sequence

from milbench._utils.words import counted as counted  # noqa: PLC0414 used by the report
from milbench._utils.words import readable as readable  # noqa: PLC0414 used by the report
from milbench.contracts.metric_info import Metric

NOTHING = "—"
MOST_NAMED = 6


def measured(mean: float, spread: float, metric: Metric) -> str:
    """Return a mean with its spread, such as 0.52 ± 0.04, with the digits of `decimals`; a nan spread is left out."""
    digits = decimals(mean, spread, metric)
    text = number(mean, digits, metric)
    return (
        text
        if math.isnan(spread)
        else f"{text} ± {number(spread, digits, metric) if spread else 0}"
    )


def interval(bounds: tuple[float, float], mean: float, metric: Metric, signed: bool = False) -> str:
    """Return an interval, such as 0.48 to 0.57, with the digits of `decimals` for its half width."""
    if any(math.isnan(bound) for bound in bounds):
        return NOTHING
    digits = decimals(mean, round((bounds[1] - bounds[0]) / 2, 9), metric)
    return " to ".join(number(bound, digits, metric, signed) for bound in bounds)


def decimals(mean: float, spread: float, metric: Metric) -> int:
    """Return how many decimals of a value are meaningful: one digit of its spread, two where that begins with a 1.

    Where the spread is nan or zero, the size of the value decides.
    """
    if not math.isfinite(spread) or spread <= 0:
        default = 2 if metric.percent else 3
        return default - 1 if metric.percent and abs(scaled(mean, metric)) >= 10 else default
    shown = scaled(spread, metric)
    exponent = math.floor(math.log10(shown))
    leading = shown / 10.0**exponent
    return min(3 if metric.percent else 4, max(0, -exponent + (1 if leading < 1.95 else 0)))


def number(value: float, digits: int, metric: Metric, signed: bool = False) -> str:
    """Return a value in the metric's unit, without the sign of the unit; nan is a dash."""
    if math.isnan(value):
        return NOTHING
    text = f"{scaled(value, metric):.{digits}f}"
    if float(text) == 0:
        return text.removeprefix("-")
    return text.replace("-", "−") if text.startswith("-") or not signed else f"+{text}"


def scaled(value: float, metric: Metric) -> float:
    """Return a value in the unit in which the metric is written: a share as a percentage."""
    return value * 100.0 if metric.percent else value


def with_unit(value: float, metric: Metric) -> str:
    """Return a value with two significant digits and its unit, such as 1.6 %."""
    return f"{float(f'{scaled(value, metric):.2g}'):g}{' %' if metric.percent else ''}"


def at_most(value: float, metric: Metric) -> str:
    """Return an upper bound in the metric's unit, without its sign: 2.1 for 0.0204, two digits, rounded up."""
    if not math.isfinite(value) or value <= 0:
        return "0" if value <= 0 else NOTHING
    shown = scaled(value, metric)
    digits = 1 - math.floor(math.log10(shown))
    return f"{math.ceil(shown * 10.0**digits - 1e-6) / 10.0**digits:g}"


def significant(value: float) -> str:
    """Return a value with three significant digits and no exponent, "—" where it isn't finite."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else NOTHING
    value = float(f"{value:.3g}")  # 999.6 has one digit more than it shows
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def number_word(count: int) -> str:
    """Return a small count as a word, such as three, a larger one in digits."""
    words = (
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    )
    return words[count] if count < len(words) else str(count)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names as a part of a sentence, such as a, b and c."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def first_of(names: Sequence[str]) -> str:
    """Return the first MOST_NAMED names as a part of a sentence, and how many more there are."""
    rest = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return listed([*names[:MOST_NAMED], *rest])


def slug(text: str) -> str:
    """Return a name for a file, of ASCII letters, digits and hyphens, with a digest where more than spaces is lost."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    is_lossy = not name or not text.isascii() or re.search(r"=\S*[-+]", text) or len(name) > 80
    return f"{name[:71]}-{zlib.crc32(text.encode()):08x}".strip("-") if is_lossy else name
