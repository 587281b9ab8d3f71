"""Numbers and names as text: meaningful digits, units, and escapes for Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from typing import TypeVar

import pandas as pd

from milbench.api.metric_info import Metric

Value = TypeVar("Value", float, "pd.Series[float]")

NOTHING = "—"
MOST_NAMED = 4
"""Of more names a sentence gives the first, and the number of the others."""
_JOINT = ",\u00a0"  # an interval stays on one line


def measured(mean: float, spread: float, metric: Metric) -> str:
    """Return a mean with its spread, with the digits of `decimals`.

    Args:
        mean: the value.
        spread: its standard deviation; nan for none.
        metric: the metric, which decides whether a percentage is written.

    Returns:
        The text, in the metric's unit.

    Examples:
        >>> error = Metric("error", "A share.")
        >>> measured(0.0052, 0.0004, error), measured(0.0052, math.nan, error)
        ('0.52 ± 0.04', '0.52')
    """
    digits = decimals(mean, spread, metric)
    text = number(mean, digits, metric)
    if math.isnan(spread):
        return text
    return f"{text} ± {number(spread, digits, metric) if spread else 0}"


def interval(bounds: tuple[float, float], mean: float, spread: float, metric: Metric, signed: bool = False) -> str:
    """Return an interval such as "[0.48, 0.57]", with the digits of the mean to which it belongs.

    Args:
        bounds: the lower and the upper bound; a dash is written where one is nan.
        mean: the value to which the interval belongs.
        spread: its standard deviation.
        metric: the metric of both.
        signed: whether positive bounds have a plus sign.

    Returns:
        The text, in the metric's unit.
    """
    if any(math.isnan(bound) for bound in bounds):
        return NOTHING
    digits = decimals(mean, spread, metric)
    return f"[{_JOINT.join(number(bound, digits, metric, signed) for bound in bounds)}]"


def decimals(mean: float, spread: float, metric: Metric) -> int:
    """Return how many decimals of a value are meaningful: one digit of its spread, two where that begins with a 1.

    Args:
        mean: the value.
        spread: its standard deviation; where it is nan or zero, the size of the value decides.
        metric: the metric of both.

    Returns:
        The number of decimals in the metric's unit, at least 0.

    Examples:
        >>> error = Metric("error", "A share.")
        >>> decimals(0.0052, 0.0004, error), decimals(0.08, 0.016, error), decimals(0.78, 0.12, error)
        (2, 1, 0)
    """
    most = 3 if metric.percent else 4
    if not math.isfinite(spread) or spread <= 0:
        default = 2 if metric.percent else 3
        return default - 1 if metric.percent and abs(scaled(mean, metric)) >= 10 else default
    shown = scaled(spread, metric)
    exponent = math.floor(math.log10(shown))
    leading = shown / 10.0**exponent
    return min(most, max(0, -exponent + (1 if leading < 1.95 else 0)))


def number(value: float, digits: int, metric: Metric, signed: bool = False) -> str:
    """Return a value in the metric's unit; nan is a dash.

    Args:
        value: the value, a share for a metric in per cent.
        digits: the number of decimals.
        metric: the metric.
        signed: whether a positive value has a plus sign.

    Returns:
        The text, without the sign of the unit.

    Examples:
        >>> number(0.0052, 2, Metric("error", "A share."), signed=True)
        '+0.52'
    """
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{scaled(value, metric):.{digits}f}"
    if float(text) == 0:
        return text.removeprefix("-")
    return text.replace("-", "−") if text.startswith("-") or not signed else f"+{text}"


def scaled(value: Value, metric: Metric) -> Value:
    """Return a value in the unit in which the metric is written: a share as a percentage.

    Examples:
        >>> scaled(0.25, Metric("error", "A share.")), scaled(0.25, Metric("distance", "In pixels.", percent=False))
        (25.0, 0.25)
    """
    return value * 100.0 if metric.percent else value


def with_unit(text: str, metric: Metric) -> str:
    """Return the text of a value with the unit of its metric: "0.52 %" for a share."""
    return f"{text} %" if metric.percent else text


def seconds(value: float) -> str:
    """Return a duration in seconds with a suitable unit.

    Examples:
        >>> [seconds(value) for value in (0.0123, 4.56, 200, 7500)]
        ['12.3 ms', '4.56 s', '3 min 20 s', '2 h 5 min']
    """
    if not math.isfinite(value):
        return NOTHING
    if value < 60:
        for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
            if value * factor >= 0.9995 or unit == "µs":
                return f"{three_digits(value * factor)} {unit}"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    whole = round(value / 60)
    return f"{whole // 60} h {whole % 60} min"


def size(value: float) -> str:
    """Return a number of bytes in decimal units.

    Examples:
        >>> size(512), size(1.25e6)
        ('512 B', '1.25 MB')
    """
    if not math.isfinite(value):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{three_digits(value)} {unit}"


def three_digits(value: float) -> str:
    """Return a value with three significant digits and no exponent."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else NOTHING
    value = float(f"{value:.3g}")  # 999.6 has one digit more than it shows
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def p_value(p: float) -> str:
    """Return a p value with three significant digits, or "< 0.001".

    Examples:
        >>> [p_value(p) for p in (0.25, 0.0625, 0.0001)]
        ['0.25', '0.0625', '< 0.001']
    """
    if math.isnan(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3g}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, in the plural where it is not one; that adds an s if it is not given.

    Args:
        count: how many there are.
        noun: in the singular.
        plural: the noun in the plural; "": with an s.

    Examples:
        >>> counted(1, "seed"), counted(3, "seed")
        ('1 seed', '3 seeds')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def shortened(text: str, length: int = 90) -> str:
    r"""Return the text on one line of at most `length` characters.

    Examples:
        >>> shortened("out of\nmemory", 10)
        'out of me…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def listed(names: list[str], joined: str = "and") -> str:
    """Return names in one phrase, the first few of them in full.

    Examples:
        >>> listed(["exact", "noisy-or", "mean"]), listed(list("abcdef"))
        ('exact, noisy-or and mean', 'a, b, c, d and 2 more')
    """
    if len(names) > MOST_NAMED + 1:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def slug(text: str) -> str:
    """Return a name for a file, of ASCII letters, digits and hyphens.

    Examples:
        >>> slug("Extended MNIST, n=2")
        'extended-mnist-n-2'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].strip("-") or "unnamed"


def markdown(text: object) -> str:
    r"""Return text escaped for Markdown, also inside a table.

    Examples:
        >>> print(markdown("a|b <i>_c_"))
        a\|b &lt;i&gt;\_c\_
    """
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", line)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": r"$-$", "≈": r"$\approx$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "—": "---",
    "∞": r"$\infty$", "…": r"\dots{}",
}  # fmt: skip


def latex(text: object) -> str:
    r"""Return text escaped for LaTeX.

    Examples:
        >>> print(latex("50% & a_b"))
        50\% \& a\_b
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(str(text).split()))
