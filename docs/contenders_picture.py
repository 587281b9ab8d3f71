"""Draw docs/contenders.svg: an example of which losses may be the best, and what widens the answer.

It is a made-up comparison of four losses with five seeds. What is drawn is what `contenders` says
of it, first by the seeds alone, then with test bags, with items that return, and with the search.
Run from the repository root: python docs/contenders_picture.py
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
"""The set error that each loss is made to have, about."""
SEEDS = 5
BAGS = 600
BAG_SIZE = 4
ITEMS = 300
DRAWS = 16
"""How many settings a search tries."""
SEARCH_SEEDS = 3
"""With how many seeds the best four draws of a search are trained."""

# In pixels.
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
"""What the allowance is made of, each with its colour."""


@dataclass(frozen=True)
class Example:
    """A comparison, and what is said of it by more and more of what varies."""

    errors: Floats
    """(losses, seeds)."""
    verdicts: list[Contenders]
    """By seeds; and test bags; and items that return; and the search."""


def make_example(number: int) -> Example:
    """Return the comparison with this number."""
    rng = np.random.default_rng(number)
    # Every item once in random order, then again.
    rounds = BAGS * BAG_SIZE // ITEMS
    items = np.concatenate([rng.permutation(ITEMS) for _ in range(rounds)])
    items_of_bags = items.reshape(BAGS, BAG_SIZE)
    # Items are hard for one loss and easy for another, which makes bags that share items alike.
    hardness = rng.normal(size=(len(LOSSES), ITEMS))
    outcomes = []
    for loss, truth in enumerate(TRUTHS):
        hardness_of_bags = 0.7 * hardness[loss, items_of_bags].sum(axis=1) / 2
        # The spread of hardness raises the mean error, which 0.45 lowers again.
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
    """Return which bags (BAGS,) a loss errs on with one seed, by the log-odds of an error in each."""
    luck_of_the_seed = 0.05 * rng.normal()
    probability = special.expit(logits + luck_of_the_seed)
    wrong = (rng.random(BAGS) < probability).astype(float)
    return Outcomes(wrong, np.ones(BAGS), "bags")


def make_search(rng: np.random.Generator, truth: float) -> Search:
    """Return a search of 16 draws with one seed, of which the best four have two more."""
    draws = special.logit(truth) + 0.15 * rng.exponential(size=(DRAWS, 1))
    validation = draws + 0.1 * rng.normal(size=(DRAWS, SEARCH_SEEDS))
    test = draws + 0.1 * rng.normal(size=(DRAWS, SEARCH_SEEDS))
    rank_by_first_seed = validation[:, 0].argsort().argsort()
    is_dropped = rank_by_first_seed >= 4
    validation[is_dropped, 1:] = np.nan
    test[is_dropped, 1:] = np.nan
    return Search(special.expit(validation), special.expit(test))


def allowances(example: Example, loss: int, best: int) -> list[float]:
    """Return how far up a loss may lie and still be the best, by more and more of what varies."""
    ends = []
    for verdict in example.verdicts:
        mean = verdict.pairs.means[best, loss]
        width = verdict.pairs.widths()[loss, best]
        ends.append(float(verdict.scaled.metric(np.array(mean + width))))
    return ends


LOWEST = 0.06
"""The error at the left of the picture."""


def place(error: float, highest: float) -> float:
    """Return where an error lies in the picture, from left to right."""
    share = (error - LOWEST) / (highest - LOWEST)
    return round(LEFT + (RIGHT - LEFT) * share, 1)


def text(
    x: float, y: float, words: str, colour: str = INK, anchor: str = "start", size: int = 13
) -> str:
    """Return a text."""
    style = f'fill="{colour}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'


def seed(x: float, y: float) -> str:
    """Return the mark of one seed."""
    return f'<circle cx="{x}" cy="{y}" r="3.5" fill="white" stroke="{INK}" stroke-width="1.2"/>'


def legend() -> list[str]:
    """Return what colours and marks mean."""
    parts = [text(12, 22, "A loss whose mean lies in the bar may be the best.")]
    columns = (12, 152)
    for number, (name, colour) in enumerate(PARTS):
        x = columns[number % 2]
        y = 48 + 20 * (number // 2)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(text(x + 17, y, name, QUIET))
    parts.append(seed(270, 44))
    parts.append(text(282, 48, "one seed", QUIET))
    parts.append(mean_line(270, 64, 8))
    parts.append(text(282, 68, "mean", QUIET))
    return parts


def mean_line(x: float, y: float, half: float) -> str:
    """Return the mark of a mean."""
    return f'<line x1="{x}" x2="{x}" y1="{y - half}" y2="{y + half}" stroke="{INK}" stroke-width="2.5"/>'


def draw_row(example: Example, loss: int, best: int, highest: float) -> list[str]:
    """Return the row of one loss: the allowance, the seeds, the mean and the verdict."""
    middle = TOP + ROW * loss + 26
    parts = [text(12, middle + 5, LOSSES[loss])]
    mean = float(example.errors[loss].mean())
    if loss != best:
        parts += draw_allowance(example, loss, best, highest)
    parts += [seed(place(error, highest), middle) for error in example.errors[loss]]
    parts.append(mean_line(place(mean, highest), middle, 20))
    if example.verdicts[-1].contender[loss]:
        parts.append(text(350, middle + 6, "✓", ACCENT, "end", 19))
    return parts


def draw_allowance(example: Example, loss: int, best: int, highest: float) -> list[str]:
    """Return the bar of one loss: from the mean of the best loss on, a piece for all that widens the allowance."""
    top = TOP + ROW * loss + 11
    pieces = []
    start = place(float(example.errors[best].mean()), highest)
    for (_, colour), error in zip(PARTS, allowances(example, loss, best), strict=True):
        end = place(error, highest)
        # What varies less than was known before widens nothing.
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
        x = place(error, highest)
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
    """Return the numbers that docs/statistics.md tells of the picture."""
    lines = []
    best = int(example.errors.mean(axis=1).argmin())
    for loss, name in enumerate(LOSSES):
        # Nothing is allowed for the best loss itself.
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
