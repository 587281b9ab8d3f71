"""Draw docs/contenders.svg: an example of which losses may be the best.

The example is a made-up comparison of four losses with five seeds. The picture shows what the
function `contenders` answers as it takes more into account: first the spread between seeds alone,
then also the choice of test bags, then that bags share items, and last the search of settings.

Run from the root of the repository: python docs/contenders_picture.py
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import clusters
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.sampling import sampling_noise
from milbench.report.statistics.selection import Search

Floats = NDArray[np.float64]

LOSSES = ("A", "B", "C", "D")
TRUTHS = (0.100, 0.112, 0.150, 0.200)
"""About the set error that the made-up bags give each loss."""
SEEDS = 5
BAGS = 600
BAG_SIZE = 4
ITEMS = 300
DRAWS = 16
"""How many settings a search tries."""
SEARCH_SEEDS = 3
"""With how many seeds the best four draws of a search are trained."""

# The layout of the picture, in pixels.
WIDTH = 360
HEIGHT = 376
LEFT = 34
RIGHT = 322
TOP = 84
ROW = 60
INK = "#1c2733"
QUIET = "#5b6874"
LINE = "#d9dee5"
ACCENT = "#00695c"
PARTS = (
    ("seeds", ACCENT),
    ("test bags", "#3f9187"),
    ("items that return", "#86bdb5"),
    ("search", "#c3e0dc"),
)
"""The parts of the allowance, each with its colour.

The allowance is how much larger than the best mean the mean of a loss may be, if the loss may
still be the best.
"""


@dataclass(frozen=True)
class Example:
    """A comparison, and its verdicts as more and more of what varies is taken into account."""

    errors: Floats
    """(losses, seeds), the set errors."""
    verdicts: list[Contenders]
    """By seeds alone; then also by test bags; by items that return; by the search."""


def make_example(seed: int) -> Example:
    """Return the comparison that a seed generates."""
    rng = np.random.default_rng(seed)
    # Every item is used once in random order, then all again.
    rounds = BAGS * BAG_SIZE // ITEMS
    items = np.concatenate([rng.permutation(ITEMS) for _ in range(rounds)])
    items_of_bags = items.reshape(BAGS, BAG_SIZE)
    # An item may be hard for one loss and easy for another. So bags that share items are alike.
    hardness = rng.normal(size=(len(LOSSES), ITEMS))
    outcomes = []
    for loss, truth in enumerate(TRUTHS):
        hardness_of_bags = 0.7 * hardness[loss, items_of_bags].sum(axis=1) / 2
        # The spread of hardness raises the mean error. To subtract 0.45 lowers it again.
        logits = special.logit(truth) - 0.45 + hardness_of_bags
        outcomes.append([make_outcomes(logits, rng) for _ in range(SEEDS)])
    errors = np.array([[of_cell.value for of_cell in row] for row in outcomes])
    independent = sampling_noise(outcomes)
    returning = sampling_noise(outcomes, {"bags": clusters(None, items_of_bags)})
    searches = [make_search(rng, truth) for truth in TRUTHS]
    verdicts = [
        contenders(errors),
        contenders(errors, noise=independent),
        contenders(errors, noise=returning),
        contenders(errors, noise=returning, searches=searches),
    ]
    return Example(errors, verdicts)


def make_outcomes(logits: Floats, rng: np.random.Generator) -> Outcomes:
    """Return on which bags (BAGS,) a loss errs with one seed, given the log-odds of each error."""
    luck_of_the_seed = 0.05 * rng.normal()
    probability = special.expit(logits + luck_of_the_seed)
    wrong = (rng.random(BAGS) < probability).astype(float)
    return Outcomes(wrong, np.ones(BAGS), "bags")


def make_search(rng: np.random.Generator, truth: float) -> Search:
    """Return a search of 16 draws. All have one seed, and the best four have two more."""
    draws = special.logit(truth) + 0.15 * rng.exponential(size=(DRAWS, 1))
    validation = draws + 0.1 * rng.normal(size=(DRAWS, SEARCH_SEEDS))
    test = draws + 0.1 * rng.normal(size=(DRAWS, SEARCH_SEEDS))
    rank_by_first_seed = validation[:, 0].argsort().argsort()
    is_dropped = rank_by_first_seed >= 4
    validation[is_dropped, 1:] = np.nan
    test[is_dropped, 1:] = np.nan
    return Search(special.expit(validation), special.expit(test))


def allowances(example: Example, loss: int, best: int) -> list[float]:
    """Return for each verdict the largest mean error with which a loss may still be the best."""
    ends = []
    for verdict in example.verdicts:
        mean = verdict.pairs.means[best, loss]
        width = verdict.pairs.widths()[loss, best]
        ends.append(float(verdict.scaled.metric(np.array(mean + width))))
    return ends


LOWEST = 0.06
"""The error at the left end of the axis."""


def x_of(error: float, highest: float) -> float:
    """Return the x of an error in pixels, where `highest` is the error at the right end."""
    share = (error - LOWEST) / (highest - LOWEST)
    return round(LEFT + (RIGHT - LEFT) * share, 1)


def text(
    x: float, y: float, words: str, colour: str = INK, anchor: str = "start", size: int = 13
) -> str:
    """Return a text as an SVG element."""
    style = f'fill="{colour}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'


def seed_circle(x: float, y: float) -> str:
    """Return the symbol of one seed."""
    return f'<circle cx="{x}" cy="{y}" r="3.5" fill="white" stroke="{INK}" stroke-width="1.2"/>'


def legend() -> list[str]:
    """Return the elements that explain colours and symbols."""
    parts = [text(12, 22, "A loss whose mean lies in the bar may be the best.")]
    columns = (12, 152)
    for number, (name, colour) in enumerate(PARTS):
        x = columns[number % 2]
        y = 48 + 20 * (number // 2)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(text(x + 17, y, name, QUIET))
    parts.append(seed_circle(270, 44))
    parts.append(text(282, 48, "one seed", QUIET))
    parts.append(mean_line(270, 64, 8))
    parts.append(text(282, 68, "mean", QUIET))
    return parts


def mean_line(x: float, y: float, half: float) -> str:
    """Return the symbol of a mean."""
    ends = f'x1="{x}" x2="{x}" y1="{y - half}" y2="{y + half}"'
    return f'<line {ends} stroke="{INK}" stroke-width="2.5"/>'


def draw_row(example: Example, loss: int, best: int, highest: float) -> list[str]:
    """Return the row of one loss: the allowance, the seeds, the mean and the verdict."""
    middle = TOP + ROW * loss + 26
    parts = [text(12, middle + 5, LOSSES[loss])]
    mean = float(example.errors[loss].mean())
    if loss != best:
        parts += draw_allowance(example, loss, best, highest)
    parts += [seed_circle(x_of(error, highest), middle) for error in example.errors[loss]]
    parts.append(mean_line(x_of(mean, highest), middle, 20))
    if example.verdicts[-1].contender[loss]:
        parts.append(text(350, middle + 6, "✓", ACCENT, "end", 19))
    return parts


def draw_allowance(example: Example, loss: int, best: int, highest: float) -> list[str]:
    """Return the bar of one loss, which begins at the mean of the best loss.

    It has a piece for each part of the allowance.
    """
    top = TOP + ROW * loss + 11
    pieces = []
    start = x_of(float(example.errors[best].mean()), highest)
    for (_, colour), error in zip(PARTS, allowances(example, loss, best), strict=True):
        end = x_of(error, highest)
        # A part that does not widen the allowance gets a piece of width 0.
        width = max(end - start, 0)
        pieces.append(
            f'<rect x="{start}" y="{top}" width="{width:.1f}" height="30" fill="{colour}"/>'
        )
        start = max(start, end)
    return pieces


def draw(example: Example) -> str:
    """Return the picture as SVG."""
    best = int(example.errors.mean(axis=1).argmin())
    highest = float(example.errors.max()) + 0.01
    parts = legend()
    bottom = TOP + ROW * len(LOSSES)
    for error in (0.1, 0.15, 0.2):
        if error > highest:
            continue
        x = x_of(error, highest)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" stroke="{LINE}" stroke-width="1"/>'
        )
        parts.append(text(x, bottom + 18, f"{100 * error:.0f} %", QUIET, "middle"))
    for loss in range(len(LOSSES)):
        parts += draw_row(example, loss, best, highest)
    parts.append(text((LEFT + RIGHT) / 2, bottom + 40, "set error", QUIET, "middle"))
    title = (
        "Four losses: their seeds, their means, and how far up each may lie and still be the best"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" role="img">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def report(example: Example) -> str:
    """Return the numbers of the picture that docs/statistics.md states."""
    lines = []
    best = int(example.errors.mean(axis=1).argmin())
    for loss, name in enumerate(LOSSES):
        # The best loss itself has no allowance.
        ends = allowances(example, loss, best) if loss != best else []
        allowed = " ".join(f"{100 * end:.1f}" for end in ends)
        ticks = ""
        for verdict in example.verdicts:
            ticks += "✓" if verdict.contender[loss] else "x"
        mean = 100 * example.errors[loss].mean()
        bound = 100 * example.verdicts[-1].worse_by[loss]
        lines.append(f"{name} {mean:.1f} % {ticks} {allowed} bound {bound:.1f}")
    resolution = example.verdicts[-1].resolution()
    lines.append(f"resolution {100 * resolution:.1f} points")
    return "\n".join(lines)


if __name__ == "__main__":
    chosen = make_example(6)
    print(report(chosen))
    Path(__file__).with_name("contenders.svg").write_text(draw(chosen), encoding="utf-8")
