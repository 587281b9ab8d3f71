"""The search for settings: which draw was chosen, and what makes a choice doubtful."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from milbench.api.plan import SearchRecord
from milbench.api.results import Results
from milbench.report.render import render
from milbench.report.search import search_lines, search_table, searches
from milbench.report.study import Study
from tests._helpers.report_data import make_results

RATES = [0.001, 0.003, 0.01, 0.03]
STEEP, FLAT = [0.5, 0.4, 0.3, 0.1], [0.20, 0.21, 0.20, 0.21]


def searched(errors: dict[str, list[float]], fresh: float, network: str = "") -> Results:
    """Return results with a draw for each error of a loss, with two seeds 2 points apart; the least was chosen."""
    results = make_results(losses=dict.fromkeys(errors, fresh / 1.6), tasks={"t": "set_error"})
    draws, rows, first = {}, [], results.frame.iloc[0].to_dict()
    for loss, values in errors.items():
        for draw, error in enumerate(values):
            for seed, off in enumerate((-0.01, 0.01)):
                cell = f"{loss} {draw} {seed}"
                own = {"loss.k": draw} if loss == "flat" else {}
                settings = {"recipe.lr": RATES[draw], **own}
                draws[cell] = {"arm": ("t", loss, network), "draw": draw, "settings": settings}
                rows.append(first | {"loss": loss, "cell": cell, "draw": draw, "metric": "validation/set_error",
                                     "value": error + off})  # fmt: skip
    chosen = {f"t|{loss}|{network}": values.index(min(values)) for loss, values in errors.items()}
    plan = replace(results.plan, search=SearchRecord("validation/set_error", draws, chosen))
    frame = pd.concat([results.frame, pd.DataFrame(rows)]).astype(
        {"draw": "Int64", "epoch": "Int64"}
    )
    return Results(plan, frame, {})


def test_an_edge_luck_and_fresh_seeds_that_do_worse_are_told() -> None:
    steep, flat = searches(Study(searched({"steep": STEEP, "flat": FLAT}, fresh=0.25)))
    assert (steep.chosen, steep.alike, flat.alike) == (3, 0, 3)
    assert steep.noise == pytest.approx(math.sqrt(2) * 0.01 / math.sqrt(2)), (
        "of two seeds, 2 points apart"
    )
    edge, own, luck, worse = search_lines([steep, flat])
    assert own.startswith("The best k is the least or the largest that was drawn for flat on t (0)")
    assert (
        "lr is the least or the largest that was drawn for steep on t (0.03) and flat on t (0.001)"
        in edge
    )
    assert "less than their noise for flat on t:" in luck
    assert worse.endswith(f"steep on t ({100 * steep.fresh.mean():.2g} % after 10 %).")


def test_a_choice_between_others_that_holds_is_not_doubted() -> None:
    # A comparison names no network where it has one; its search does where it was asked for.
    arms = searches(Study(searched({"a": [0.5, 0.1, 0.3, 0.4]}, fresh=0.1, network="small")))
    assert not search_lines(arms)
    assert (arms[0].variant, len(arms[0].fresh)) == ("a", 3)
    assert search_table([]) is None


def test_the_page_has_a_section_on_the_search(tmp_path: Path) -> None:
    page = render(searched({"steep": STEEP, "flat": FLAT}, fresh=0.25), tmp_path).read_text("utf-8")
    parts = (
        "The search for settings",
        "Much worse with fresh seeds",
        "of every setting that was searched on t",
        "recipe.lr = 0.03",
        "Where this comes from",
    )
    places = [page.index(text) for text in parts]
    assert places == sorted(places)
