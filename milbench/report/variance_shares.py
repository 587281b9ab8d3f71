"""Where variance comes from: how much of it is due to loss, network, settings and seeds, over all trained cells.

Every trained cell of a task counts: the draws of the search at their last epoch, and the cells of the comparison at the
epoch that counts. Shares are taken as logits and other positive values as logarithms, as everywhere where losses are
compared. A model with one number for each loss, each network, each start, ... is fitted by least squares: it adds what
they do. A factor is then left out. What is explained without it is less, and this loss is the factor's own.

A factor with many levels explains something by chance. That is subtracted (omega squared, W. L. Hays, "Statistics for
Psychologists", 1963):

    share = (S_factor - f_factor M) / (S + M)        S: the sum of squares of all values around their mean; S_factor:
                                                      what is lost without the factor; f_factor: the parameters that
                                                      are lost with it; M: what is left per degree of freedom

so that the share of a factor without effect is 0 on average, and may be a little below. In a balanced design S_factor
is that of a classical analysis of variance.

What is not the work of single factors is in two other rows. *Several together* is explained by the model, but by no
factor alone: another one is there that would explain it as well. In a balanced design it is 0. *The rest* is what the
model does not explain: interactions, such as a rate that suits one loss and not another, and noise.

*Factors that cannot be told apart.* Where two factors go together, such as a start that was only tried with small
rates, nobody can say which of them it was. Neither gets a share; one row says what they explain together. This holds
where some of their levels cannot be told apart, too.

*Seeds and stages.* Draws that are trained with more seeds, and the cells of the comparison, have settings that were
chosen, and do better. No seed is in two stages. So the stage is a factor of its own, and the share of seeds is what
differs between seeds within a stage.

What this can say: in which of these choices the cells that were trained differ most. What it cannot say: what the
share would be with other losses, or with other ranges of settings; a wide range makes any setting important. Cells
count alike, so that settings with more cells, such as those that were chosen, weigh more. A factor that only acts on
some losses shows here in part, and in part in the rest.

The 95 % interval is over other draws and seeds, for these losses and networks. It is made of what happens when the
draws of one point of the ranges, or one seed of the comparison, are left out with all losses (the jackknife). The
interval of a share near 0, or of few draws, is rough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from milbench.contracts.metric_info import describe
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Draw
from milbench.report.formatting import NOTHING, listed, readable
from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import Kind, kind_of, scaled
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.uses import USES

Floats = NDArray[np.float64]

RATE = "learning rate"
STAGE = "stage of the search"
SEED = "seed"
TOGETHER = "several together"
REST = "the rest: interactions and noise"

COLUMNS = ["metric", "source", "share", "low", "high", "alike", "cells"]
"""The columns of `variance_shares`."""

MOST_RATES = 8
"""With more learning rates than these, those within a factor of about two count as one."""

NOTE = (
    "In % of the variance of all trained cells, draws of the search included. Shares vary as logits here, other "
    "metrics as logarithms. In brackets: 95 % intervals over other draws and seeds. A factor has what no "
    "other one explains. With other losses or wider ranges of settings shares would be others."
)
"""What a reader has to know, below the table."""

ROUNDING = 1e-8
"""A difference of sums of zeros and ones that is none."""

NEGLIGIBLE = 0.005
"""A share that is shown as none."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """How much of the variance is due to a factor, or to some that cannot be told apart."""

    factors: tuple[str, ...]
    """Empty for what is no work of single factors."""
    source: str
    """The name of the row."""
    value: float
    """The share; around 0 by chance, where there is none."""
    low: float
    high: float
    """The 95 % interval; NaN where nothing can be left out."""


def variance_shares(study: Study, task: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Return how much of the variance of metrics is due to what, over all trained cells of a task.

    Args:
        study: the results, with a search or without, which may still be running.
        task: the task, as reports name it.
        metrics: metrics of test bags, without their split.

    Returns:
        Rows for each metric: metric; source, a factor that varies, several that cannot be told apart, `TOGETHER`, or
        `REST`; share; low and high, its 95 % interval; alike, the factors that a factor cannot be told apart from, ""
        for none (its share is then NaN, and one row more has the share of them all); cells, how many there are. No
        rows for a metric that does not vary, or that has no more cells than the model has parameters.
    """
    cells = _cells_of(study, task)
    if not cells:
        return pd.DataFrame(columns=COLUMNS)
    levels = _levels(study, cells)
    groups = pd.Series(_groups(study, cells), index=levels.index)
    drawn = study.drawn_values
    rows = []
    for metric in metrics:
        values = _values(study, task, metric, drawn).reindex(levels.index).dropna()
        kind = kind_of(describe(metric))
        shares = shares_of(values, levels.loc[values.index], groups[values.index], kind)
        rows += _rows(metric, shares, len(values))
    return pd.DataFrame(rows, columns=COLUMNS)


def variance_table(study: Study, task: str) -> Table | None:
    """Return how much of the variance of each use's metric is due to what, in percent; None where nothing varies."""
    metrics = _measured(study, task)
    frame = variance_shares(study, task, metrics)
    if frame.empty:
        return None
    columns = {}
    for metric in dict.fromkeys(frame["metric"]):
        own = frame[(frame["metric"] == metric) & frame["share"].notna()]
        texts = pd.Series([_text(row) for _, row in own.iterrows()], index=own["source"])
        texts["cells"] = f"{own['cells'].iloc[0]}"
        columns[describe(metric).label] = texts
    order = [*_ordered(frame), "cells"]
    table = pd.DataFrame(columns).reindex(order).fillna(NOTHING).rename_axis("due to")
    note = " ".join([NOTE, *_alike_lines(frame)])
    return Table(f"Where variance comes from on {readable(task)}", table, note)


def _measured(study: Study, task: str) -> list[str]:
    """Return of each use the first metric that was measured on a task."""
    drawn = study.drawn_values
    found = []
    for use in USES:
        for metric in use.metrics:
            if not _values(study, task, metric, drawn).empty:
                found.append(metric)
                break
    return found


# The cells


def _cells_of(study: Study, task: str) -> list[Cell]:
    """Return the planned cells of a task, those of the search included."""
    labels = study.plan.labels
    return [cell for cell in study.plan.cells if labels[cell.id].task == task]


def _draws(study: Study) -> dict[str, Draw]:
    """Return the draw of each cell of the search."""
    return study.plan.search.draws if study.plan.search else {}


def _values(study: Study, task: str, metric: str, drawn: pd.DataFrame) -> pd.Series[float]:
    """Return the test values of a metric by cell: at the epoch that counts, and of draws at the last one.

    `drawn` is `Study.drawn_values`.
    """
    name = f"test/{metric}"
    parts = []
    if task in study.tasks:
        selected = study.selected(task, metric)
        selected = selected[selected["metric"] == name].drop_duplicates("cell", keep="last")
        parts.append(selected.set_index("cell")["value"].astype(float))
    if name in drawn:
        own = [cell for cell, draw in _draws(study).items() if draw.arm.task == task]
        parts.append(drawn[name].reindex(own))
    if not parts:
        return pd.Series(dtype=float)
    values = pd.concat(parts)
    return values[np.isfinite(values)]


def _levels(study: Study, cells: Sequence[Cell]) -> pd.DataFrame:
    """Return the level of every factor of each cell: a row a cell, a column a factor."""
    recipes = [cell.recipe for cell in cells]
    return pd.DataFrame(
        {
            "loss": [study.plan.labels[cell.id].loss for cell in cells],
            "network": [_network(study, cell) for cell in cells],
            "start": [recipe.head_init for recipe in recipes],
            RATE: _rate_classes([recipe.lr for recipe in recipes]),
            "optimiser": [recipe.optimizer for recipe in recipes],
            "gradient rule": [recipe.gradient_norm for recipe in recipes],
            "length": [f"{recipe.epochs} x {recipe.steps_per_epoch}" for recipe in recipes],
            STAGE: _stages(study, cells),
            SEED: [str(cell.seed) for cell in cells],
        },
        index=[cell.id for cell in cells],
    )


def _network(study: Study, cell: Cell) -> str:
    """Return the network of a cell with its parameters, whether or not a report names it."""
    params = study.plan.params(cell)
    settings = [f"{key}={params[key]}" for key in sorted(params) if key.startswith("network.")]
    return " ".join([cell.network.name, *settings])


def _rate_classes(rates: Sequence[float]) -> list[str]:
    """Return the learning rates as levels; many of them in classes of a factor of two."""
    if len(set(rates)) <= MOST_RATES:
        return [f"{rate:g}" for rate in rates]
    return [f"about 2^{round(math.log2(rate))}" for rate in rates]


def _stages(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Return of each cell whether it is a draw, a finalist with a further seed, or a cell of the comparison."""
    draws = _draws(study)
    draws_by_seed: dict[int, int] = {}
    for cell in cells:
        if cell.id in draws:
            draws_by_seed[cell.seed] = draws_by_seed.get(cell.seed, 0) + 1
    # All draws have the first seed, finalists alone have others.
    most = max(draws_by_seed.values(), default=0)
    stages = []
    for cell in cells:
        if cell.id not in draws:
            stages.append("comparison")
        elif draws_by_seed[cell.seed] == most:
            stages.append("draws")
        else:
            stages.append("finalists")
    return stages


def _groups(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Return what each cell is left out with: a draw, or the point of the ranges that draws share, or a seed."""
    draws = _draws(study)
    groups = []
    for cell in cells:
        draw = draws.get(cell.id)
        if draw is None:
            groups.append(f"seed {cell.seed}")
        elif draw.point is None:
            groups.append(f"draw {draw.number}")
        else:
            groups.append(f"point {draw.point}")
    return groups


# The shares


class _Model:
    """Values, and what sums of factors explain of them."""

    def __init__(self, values: Floats, levels: pd.DataFrame) -> None:
        self.values = values - values.mean()
        self.levels = {str(factor): levels[factor].nunique() for factor in levels}
        self._columns = {str(factor): _indicators(levels, str(factor)) for factor in levels}
        self._fits: dict[frozenset[str], tuple[float, int]] = {}
        constant = np.ones((len(values), 1))
        design = np.hstack([constant, *self._columns.values()])
        owners = [""]
        for factor, own in self._columns.items():
            owners += [factor] * own.shape[1]
        self._owners = np.array(owners)
        # All sums of factors are fitted by parts of these products, which are small: cells are many, levels few.
        self._products = design.T @ design
        self._targets = design.T @ self.values

    @property
    def total(self) -> float:
        """The sum of the squares of all values around their mean."""
        return float(self.values @ self.values)

    def fit(self, without: Iterable[str] = ()) -> tuple[float, int]:
        """Return the sum of squares that is left, and the number of parameters, without some of the factors."""
        left_out = frozenset(without)
        if left_out not in self._fits:
            stays = np.flatnonzero(~np.isin(self._owners, list(left_out)))
            products = self._products[np.ix_(stays, stays)]
            targets = self._targets[stays]
            solution, _, rank, _ = np.linalg.lstsq(products, targets, rcond=ROUNDING)
            explained = float(solution @ targets)
            self._fits[left_out] = max(self.total - explained, 0.0), int(rank)
        return self._fits[left_out]

    def lost(self, factors: Iterable[str]) -> tuple[float, int]:
        """Return the sum of squares that only these factors explain, and the number of their parameters.

        Seeds are parts of a stage. What the stage explains is therefore asked of the model without seeds.
        """
        names = set(factors)
        parts = {SEED} if STAGE in names else set()
        squares, parameters = self.fit(parts - names)
        squares_left, parameters_left = self.fit(parts | names)
        return squares_left - squares, parameters - parameters_left

    def entangled(self) -> list[set[str]]:
        """Return sets of factors that are not told apart: a level of one is a sum of levels of the others."""
        found = []
        # The columns so far that are no sums of others, and the factor of each; "" for the constant.
        independent = np.ones((len(self.values), 1))
        owners = [""]
        for factor, own in self._columns.items():
            if own.shape[1] == 0:
                # Each stage has one seed.
                found.append({SEED, STAGE})
            for column in own.T:
                weights = np.linalg.lstsq(independent, column, rcond=None)[0]
                if np.abs(column - independent @ weights).max() > ROUNDING:
                    independent = np.column_stack([independent, column])
                    owners.append(factor)
                    continue
                used = np.flatnonzero(np.abs(weights) > ROUNDING)
                found.append({factor} | {owners[place] for place in used} - {""})
        return found

    def noise(self) -> float:
        """Return what is left per degree of freedom, NaN where nothing is left."""
        squares, parameters = self.fit()
        freedom = len(self.values) - parameters
        return squares / freedom if freedom > 0 else math.nan

    def shares(self, sources: Sequence[tuple[str, ...]]) -> Floats:
        """Return the shares of sources, of several together, and of the rest; they add up to 1."""
        noise = self.noise()
        whole = self.total + noise
        own = []
        for factors in sources:
            squares, parameters = self.lost(factors)
            own.append((squares - parameters * noise) / whole)
        rest = len(self.values) * noise / whole
        return np.array([*own, 1 - sum(own) - rest, rest])


def _indicators(levels: pd.DataFrame, factor: str) -> Floats:
    """Return a column of zeros and ones for each level of a factor but the first, which the constant stands for.

    Of the seeds of each stage the first one is left out, which the stage stands for.
    """
    if factor == SEED and STAGE in levels:
        first = set(levels.drop_duplicates(STAGE)[SEED])
    else:
        first = set(levels[factor].iloc[:1])
    others = [level for level in levels[factor].unique() if level not in first]
    columns = [(levels[factor] == level).to_numpy(float) for level in others]
    return np.array(columns, float).reshape(len(others), len(levels)).T


def shares_of(
    values: pd.Series[float],
    levels: pd.DataFrame,
    groups: pd.Series[str],
    kind: Kind | None = None,
) -> list[Share]:
    """Return the shares of all sources of the variance of values.

    Args:
        values: of each cell, in the unit of the metric.
        levels: a row a cell, a column a factor. A column `SEED` is part of a column `STAGE`, where both are there.
        groups: of each cell what it is left out with, for the intervals.
        kind: the scale on which variances are compared, see `scaled`.

    Returns:
        Those of single factors, or of several that cannot be told apart; last `TOGETHER` and `REST`. Nothing where
        nothing varies, or where there are no more values than parameters.
    """
    varying = [factor for factor in levels if len(levels[factor].unique()) > 1]
    levels = levels[varying]
    given = np.asarray(values, np.float64)
    if levels.empty or np.ptp(given) == 0:
        return []
    scale = scaled(given[:, None], True, None, kind)
    on_scale = np.asarray(scale.values)[:, 0]
    model = _Model(on_scale, levels)
    if math.isnan(model.noise()):
        return []
    sources = _sources(model)
    shares = model.shares(sources)
    reach = _reach(on_scale, levels, list(groups), sources)
    names = [*map(_name, sources), TOGETHER, REST]
    factors = [*sources, (), ()]
    found = []
    for source, name, share, half_width in zip(factors, names, shares, reach, strict=True):
        low, high = share - half_width, share + half_width
        if name != TOGETHER:
            low, high = np.clip([low, high], 0, 1)
        found.append(Share(source, name, float(share), float(low), float(high)))
    return found


def _sources(model: _Model) -> list[tuple[str, ...]]:
    """Return the factors one by one, and those together that cannot be told apart."""
    groups = [{factor} for factor in model.levels]
    for entangled in model.entangled():
        # What goes together with a member of a group belongs to the group.
        touched = [group for group in groups if group & entangled]
        groups = [group for group in groups if not group & entangled]
        groups.append(set().union(*touched))
    sources = [tuple(factor for factor in model.levels if factor in group) for group in groups]
    factors = list(model.levels)
    return sorted(sources, key=lambda source: factors.index(source[0]))


def _reach(
    values: Floats,
    levels: pd.DataFrame,
    groups: Sequence[str],
    sources: Sequence[tuple[str, ...]],
) -> Floats:
    """Return the half width of the interval of each share, NaN where fewer than three groups can be left out."""
    left_out = []
    for group in dict.fromkeys(groups):
        stays = np.array([other != group for other in groups])
        if stays.sum() < 2:
            continue
        model = _Model(values[stays], levels[stays])
        if not math.isnan(model.noise()):
            left_out.append(model.shares(sources))
    count = len(left_out)
    if count < 3:
        return np.full(len(sources) + 2, np.nan)
    replicates = np.array(left_out)
    squares = ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0)
    deviation = np.sqrt(squares * (count - 1) / count)
    return np.asarray(special.stdtrit(count - 1, (1 + LEVEL) / 2) * deviation)


# The words


def _name(factors: tuple[str, ...]) -> str:
    """Return the name of a source."""
    if len(factors) == 1:
        return factors[0]
    return f"{listed(factors, 'or')}, not told apart"


def _rows(metric: str, shares: Sequence[Share], cells: int) -> list[tuple[str | float, ...]]:
    """Return the rows of a metric; factors that cannot be told apart have rows without a share of their own."""
    rows: list[tuple[str | float, ...]] = []
    for share in shares:
        rows.append((metric, share.source, share.value, share.low, share.high, "", cells))
        if len(share.factors) < 2:
            continue
        for factor in share.factors:
            others = [other for other in share.factors if other != factor]
            nothing = (math.nan, math.nan, math.nan)
            rows.append((metric, factor, *nothing, listed(others), cells))
    return rows


def _ordered(frame: pd.DataFrame) -> list[str]:
    """Return the sources of a table that have a share, those that are no factors last."""
    known = frame[frame["share"].notna()]
    sources = list(dict.fromkeys(known["source"]))
    factors = [source for source in sources if source not in (TOGETHER, REST)]
    together = known.loc[known["source"] == TOGETHER, "share"]
    if (together.abs() >= NEGLIGIBLE).any():
        factors.append(TOGETHER)
    return [*factors, REST]


def _text(row: pd.Series[float]) -> str:
    """Return a share in percent with its interval, such as 34 (20 to 51)."""
    share = float(row["share"])
    # By chance a share may be a little below 0, or the rest above 1.
    if str(row["source"]) != TOGETHER:
        share = min(max(share, 0.0), 1.0)
    text = _percent(share)
    if math.isnan(float(row["low"])):
        return text
    return f"{text} ({_percent(float(row['low']))} to {_percent(float(row['high']))})"


def _percent(share: float) -> str:
    text = f"{100 * share:.0f}"
    return "0" if text == "-0" else text.replace("-", "\N{MINUS SIGN}")


def _alike_lines(frame: pd.DataFrame) -> list[str]:
    """Return a sentence for every factors that cannot be told apart."""
    joint = frame[frame["share"].notna() & frame["source"].str.endswith(", not told apart")]
    lines = []
    for source in dict.fromkeys(joint["source"]):
        factors = str(source).removesuffix(", not told apart").replace(" or ", " and ")
        lines.append(f"Of {factors} some levels were only tried together.")
    return lines
