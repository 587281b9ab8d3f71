"""The page of a report in a real browser: what readers sort, filter, point at and link to, and who can read it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from milbench.api.marks import Mark
from milbench.report.render import render
from tests._helpers.browser import needs_browser, opened
from tests._helpers.report_data import make_results

pytestmark = [needs_browser, pytest.mark.timeout(120)]

OVERLAPS = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim())
    .map((t) => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2.5).map(([other]) => `${one} | ${other}`));
})"""
CUT_OFF = """() => [...document.querySelectorAll("#seeds-chart svg, #pair-chart svg")].flatMap((svg) => {
  const edge = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((t) => t.getBoundingClientRect().bottom > edge.bottom)
    .map((t) => t.textContent);
})"""
SMALLEST = """() => Math.min(...[...document.querySelectorAll("figure svg text")].filter((t) => t.textContent.trim())
  .map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a).filter((size) => size > 0))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    statuses = {("max-pooling", "extended-digits", 1): ("failed", "FloatingPointError: not finite")}
    tasks = dict.fromkeys(("extended-digits", "synthetic-bags"), "instance_error")
    render(make_results(folder, None, tasks, epochs=6, statuses=statuses), folder / "out")
    return folder / "out" / "index.html"


def column(tab: Any, table: str, index: int) -> list[str]:
    return [text.split("\n")[0] for text in tab.locator(f"{table} tbody tr > :nth-child({index})").all_inner_texts()]


def main_table(tab: Any) -> str:
    return "section:has(> h2:text-is('Every loss on every task')) table"


def test_without_scripts_everything_is_there_but_what_needs_them(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        assert tab.locator("#explore").is_hidden()
        assert tab.locator(".answer p").first.is_visible()
        assert tab.locator("figure svg").count() == 10
        assert tab.locator(f"{main_table(tab)} tbody tr").count() == 4
        assert tab.locator("summary:text('Every cell')").is_visible()


def test_a_table_is_sorted_by_any_column_and_back(page: Path) -> None:
    with opened(page) as tab:
        table = main_table(tab)
        before = column(tab, table, 1)
        head = tab.locator(f"{table} thead th:nth-child(2)")
        values = []
        for way in ("ascending", "descending"):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == way
            values.append([float(text.split("±")[0]) for text in column(tab, table, 2)])
        assert values[0] == sorted(values[0])
        assert values[1] == sorted(values[1], reverse=True)
        assert values[0] != values[1]
        head.locator("button").click()
        assert head.get_attribute("aria-sort") is None
        assert column(tab, table, 1) == before


def test_costs_are_sorted_by_their_size_and_not_by_their_letters(page: Path) -> None:
    with opened(page) as tab:
        table = "#task-extended-digits table:has(th:has-text('loss alone'))"
        tab.locator(f"{table} thead th:nth-child(2) button").click()
        assert column(tab, table, 1) == ["exact", "max-pooling", "noisy-or", "one-vs-rest"], (
            "made four times as slow each"
        )


def test_a_loss_that_is_filtered_out_is_gone_from_tables_and_charts_and_the_page_says_so(page: Path) -> None:
    with opened(page) as tab:
        tab.get_by_text("Choose what the page shows").click()
        tab.locator("#show-losses").get_by_label("noisy-or").uncheck()
        assert tab.locator(f"{main_table(tab)} tbody tr:visible").count() == 3
        pairs = tab.locator("#task-synthetic-bags table th[data-name*='−']:visible").all_inner_texts()
        assert len(pairs) == 3, "of six"
        assert not [name for name in pairs if "noisy-or" in name]
        assert "noisy-or" not in tab.locator("#seeds-chart").inner_text()
        assert "3 of 4 losses" in tab.locator("#filter-said").inner_text()
        tab.locator("#show-tasks").get_by_label("synthetic-bags").uncheck()
        assert tab.locator("#task-synthetic-bags").is_hidden()
        assert tab.locator(f"{main_table(tab)} thead th:visible").count() == 2
        tab.locator("#show-metrics").get_by_label("AUROC", exact=True).uncheck()
        assert tab.locator("#task-extended-digits th:has-text('AUROC'):visible").count() == 0
        tab.get_by_role("button", name="Show all").click()
        assert tab.locator(f"{main_table(tab)} tbody tr:visible").count() == 4
        assert tab.locator("#filter-said").is_hidden()
        assert tab.locator("#show-metrics").get_by_label("one-instance error", exact=True).count() == 0, "it leads"


def test_a_loss_that_is_filtered_out_is_gone_from_tables_whose_columns_are_losses(tmp_path: Path) -> None:
    marks = {"synthetic-bags": [Mark("easy", "synthetic-bags", {}, "set_error", 0.05, at_most=True)]}
    with opened(render(make_results(None, epochs=2, marks=marks), tmp_path)[-1]) as tab:
        heads = tab.locator("main thead th:visible", has_text="noisy-or")
        assert heads.count() >= 1, "the matrix of tests"
        tab.get_by_text("Choose what the page shows").click()
        tab.locator("#show-losses").get_by_label("noisy-or").uncheck()
        assert heads.count() == 0
        assert tab.locator("main thead th:visible", has_text="one-vs-rest").count() >= 1


def test_what_is_left_out_cannot_be_chosen_and_the_notice_is_printed(page: Path) -> None:
    with opened(page, "#?a=exact&b=noisy-or&hide-losses=noisy-or&hide-tasks=extended-digits") as tab:
        assert tab.locator("#task option").all_inner_texts() == ["synthetic-bags"]
        assert tab.locator("#second").input_value() == ""
        assert "noisy-or" not in tab.locator("#first").inner_text()
        tab.emulate_media(media="print")
        assert "3 of 4 losses" in tab.locator("#filter-said").inner_text()
        assert tab.locator("#filter-said").bounding_box()["y"] < tab.locator(".answer").bounding_box()["y"]


def test_a_sorted_table_stays_sorted_when_its_lines_change(page: Path) -> None:
    with opened(page) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        head = tab.locator("table:has(#means-body) thead th:nth-child(2)")
        for _ in range(2):
            head.locator("button").click()
        tab.locator("#task").select_option(label="synthetic-bags")
        tab.locator("#metric").select_option("set_error")
        assert head.get_attribute("aria-sort") == "descending"
        means = [float(text.split()[0]) for text in tab.locator("#means-body td:nth-child(2)").all_inner_texts()]
        assert means == sorted(means, reverse=True)


def test_what_is_missing_comes_last_both_ways(page: Path) -> None:
    with opened(page) as tab:
        table = "#task-extended-digits table:has(th:has-text('simultaneous'))"
        for _ in range(2):
            tab.locator(f"{table} thead th:nth-child(5) button").click()
            bounds = column(tab, table, 5)
            known = [float(text.strip("[]").split(",")[0].replace("−", "-")) for text in bounds if text != "—"]
            assert "—" in bounds
            assert bounds[len(known) :] == ["—"] * (len(bounds) - len(known))
            assert known in (sorted(known), sorted(known, reverse=True))


def test_a_metric_that_is_not_compared_gives_way_and_the_page_says_so(page: Path) -> None:
    with opened(page, "#?a=exact&b=one-vs-rest&metric=step_seconds") as tab:
        assert "not compared by time of a training step" in tab.locator("#pair-note").inner_text()
        assert "one-instance error" in tab.locator("#pair-said").inner_text()
        assert tab.locator("#rule").is_disabled()
        assert "median" in tab.locator("#mean-head").text_content()


def test_a_link_inside_the_page_keeps_what_was_chosen(page: Path) -> None:
    with opened(page, "#?hide-losses=noisy-or") as tab:
        tab.locator(f"{main_table(tab)} td a").first.click()
        assert tab.evaluate("location.hash") == "#runs-0-0"
        assert "3 of 4 losses" in tab.locator("#filter-said").inner_text()


def test_the_epoch_rule_changes_means_to_those_of_the_files(page: Path) -> None:
    frame = pd.read_csv(page.parent / "results.csv")
    frame = frame[(frame["task"] == "extended-digits") & (frame["status"] == "done")]
    with opened(page) as tab:
        for rule, name in (("last", "last"), ("validation", "chosen_on_validation"), ("test", "best_on_test")):
            tab.locator("#rule").select_option(rule)
            expected = frame.groupby("loss")[f"{name}/test/instance_error"].mean()
            tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            rows = tab.locator("#means-body tr").all()
            assert len(rows) == 4
            for row in rows:
                loss, mean = row.locator("th").inner_text(), row.locator("td").first.inner_text()
                assert float(mean.split()[0]) == pytest.approx(100 * expected[loss], rel=2e-4)


def test_pointing_at_a_mark_shows_seed_value_and_run(page: Path) -> None:
    frame = pd.read_csv(page.parent / "results.csv", dtype={"run_id": str})
    with opened(page) as tab:
        assert tab.locator("#seeds-chart svg, #pair-chart svg").count() == 2
        assert tab.evaluate(CUT_OFF) == []
        tab.locator("#seeds-chart").scroll_into_view_if_needed()
        tab.locator("#seeds-chart circle").first.hover()
        text = " ".join(tab.locator("#seeds-chart svg tspan").all_text_contents())
        frame = frame[(frame["task"] == "extended-digits") & (frame["loss"] == "exact")]
        row = frame[frame["run_id"].map(text.__contains__)]
        assert len(row) == 1
        assert f"seed {row['seed'].iloc[0]}" in text


def test_two_losses_differ_as_the_file_of_pairs_says(page: Path) -> None:
    with (page.parent / "pairs.csv").open() as file:
        known = {(row["task"], row["loss"], row["other_loss"]): row for row in csv.DictReader(file)}
    with opened(page) as tab:
        for first, second in (("exact", "max-pooling"), ("max-pooling", "exact")):
            tab.locator("#first").select_option(first)
            tab.locator("#second").select_option(second)
            rows = tab.locator("#pair-body tr").all()
            assert len(rows) == 2
            for row in rows:
                task, _, mean, bounds, verdict, seeds, _ = row.locator("th, td").all_inner_texts()
                turned = (task, first, second) not in known
                pair = known[task, second, first] if turned else known[task, first, second]
                sign = -1 if turned else 1
                assert float(mean.replace("−", "-")) == pytest.approx(sign * 100 * float(pair["difference"]), rel=0.2)
                if pair["low"]:
                    low, high = (float(x.replace("−", "-")) for x in bounds.strip("[]").split(","))
                    assert low < sign * 100 * float(pair["difference"]) < high
                else:
                    assert bounds == "—"
                assert int(seeds) == int(pair["seeds"])
                opposite = {"better": "worse", "worse": "better", "unresolved": "unresolved"}
                assert verdict.startswith(opposite[pair["verdict"]] if turned else pair["verdict"])


def test_a_link_keeps_what_was_chosen(page: Path) -> None:
    with opened(page) as tab:
        tab.locator("#task").select_option(label="synthetic-bags")
        tab.locator("#metric").select_option("auroc")
        tab.locator("#rule").select_option("test")
        tab.locator("#first").select_option("exact")
        tab.locator("#second").select_option("one-vs-rest")
        tab.get_by_text("Choose what the page shows").click()
        tab.locator("#show-losses").get_by_label("max-pooling").uncheck()
        tab.locator(f"{main_table(tab)} thead th:nth-child(3) button").click()
        order = column(tab, main_table(tab), 1)
        fragment = tab.evaluate("location.hash")
    with opened(page, fragment) as tab:
        chosen = [tab.locator(f"#{name}").input_value() for name in ("task", "metric", "rule", "first", "second")]
        assert chosen == ["1", "auroc", "test", "exact", "one-vs-rest"]
        assert column(tab, main_table(tab), 1) == order
        assert "max-pooling" not in tab.locator("#seeds-chart").inner_text()
        assert "exact beside one-vs-rest" in tab.locator("#pair-said").inner_text()


@pytest.mark.parametrize(
    "fragment", ["#?task=nothing&metric=toString&rule=x&a=y&sort=99.99.up&hide-losses=z", "#runs-0-0"]
)
def test_a_link_of_another_page_does_no_harm(page: Path, fragment: str) -> None:
    with opened(page, fragment) as tab:
        assert tab.locator("#seeds-chart svg").count() == 1
        assert tab.locator(f"{main_table(tab)} tbody tr:visible").count() == 4


def test_everything_can_be_reached_and_used_by_keyboard_alone(page: Path) -> None:
    with opened(page) as tab:
        seen: list[str] = []
        for _ in range(120):
            tab.keyboard.press("Tab")
            seen.append(tab.evaluate("document.activeElement.id"))
            if seen[-1] == "rule":
                break
        assert {"task", "metric", "rule", "copy"} <= set(seen)
        tab.keyboard.press("ArrowDown")
        assert tab.locator("#rule").input_value() == "validation"
        tab.locator(f"{main_table(tab)} thead button").nth(1).focus()
        tab.keyboard.press("Enter")
        assert tab.locator(f"{main_table(tab)} thead th").nth(1).get_attribute("aria-sort") == "ascending"
        stops = "[...document.querySelectorAll('.scroll, .picture')].filter((box) => box.offsetParent)"
        scrolls = "box.scrollWidth > box.clientWidth + 1"
        tab.set_viewport_size({"width": 390, "height": 800})
        tab.wait_for_function(f"{stops}.some((box) => {scrolls})")
        # What scrolls is a stop of the keyboard, and nothing else is.
        tab.wait_for_function(f"{stops}.every((box) => (box.tabIndex === 0) === ({scrolls}))")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(page: Path, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(page, "#?a=exact&b=noisy-or", viewport={"width": width, "height": 844}, color_scheme=scheme) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        found = Axe().run(tab).response["violations"]
        assert not [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(OVERLAPS) == []
        assert tab.evaluate(SMALLEST) >= 7.5


def test_every_figure_says_what_it_shows_and_has_its_data(page: Path) -> None:
    frame = pd.read_csv(page.parent / "results.csv")
    done = frame[(frame["task"] == "extended-digits") & (frame["status"] == "done")]
    with opened(page) as tab:
        figures = tab.locator("figure").all()
        assert len(figures) == 10
        for figure in figures:
            assert figure.locator("svg").get_attribute("role") == "img"
            assert len(figure.locator("svg").get_attribute("aria-label")) > 40
            with tab.expect_download() as waiting:
                figure.locator("a[download]").click()
            data = pd.read_csv(waiting.value.path())
            assert len(data) > 1
            assert {"loss", "bag"} & set(data.columns)
        means = tab.locator("#task-extended-digits figure svg").first.get_attribute("aria-label")
        value = 100 * done.groupby("loss")["last/test/instance_error"].mean()["one-vs-rest"]
        told = float(means.partition("one-vs-rest ")[2].split(" ")[0])
        assert told == pytest.approx(value, abs=0.06)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a page, and beside it one for every task, as one page would be a tenth too large."""
    tasks = dict.fromkeys(("extended-digits", "synthetic-bags"), "instance_error")
    statuses = {("max-pooling", "extended-digits", 1): ("failed", "FloatingPointError: not finite")}
    results, out = (
        make_results(None, None, tasks, epochs=6, statuses=statuses),
        tmp_path_factory.mktemp("split") / "out",
    )
    whole = render(results, out)[-1].stat().st_size
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("milbench.report.pages._LINKED_FIRST", ())
        patched.setattr("milbench.report.pages.MOST_BYTES", whole * 9 // 10)
        return render(results, out)[-1]


def test_an_overview_leads_to_the_runs_on_the_page_of_a_task(split: Path) -> None:
    with opened(split) as tab:
        assert tab.locator("#metric option").count() == 1, "the metric that leads"
        assert tab.locator("#pair-body tr").count() == 2, "two losses side by side, on both tasks"
        link = tab.locator(f"{main_table(tab)} tbody tr td a").nth(1)
        value = link.inner_text()
        link.click()
        assert tab.url.partition("#")[0].endswith("task-synthetic-bags.html")
        assert tab.locator("h1").inner_text() == "synthetic-bags"
        assert tab.locator("details:has(> summary:text('Every cell'))").get_attribute("open") is not None
        assert tab.locator("table.cells tbody tr[data-seed]").count() == 12
        assert tab.locator("#metric option").count() > 5, "all metrics and costs"
        told = tab.locator("section[data-task='synthetic-bags'] table").first
        assert value in told.inner_text()
        tab.locator("header a", has_text="demo").first.click()
        assert tab.url.endswith("index.html")


@pytest.mark.parametrize("name", ["index.html", "task-synthetic-bags.html"])
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_axe_finds_nothing_on_split_pages(split: Path, name: str, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(split.parent / name, viewport={"width": width, "height": 844}, color_scheme=scheme) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert not [(one["id"], one["nodes"][0]["html"][:200]) for one in Axe().run(tab).response["violations"]]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_print_has_the_figures_and_not_the_controls(page: Path) -> None:
    with opened(page) as tab:
        tab.emulate_media(media="print")
        assert tab.locator("#explore").is_hidden()
        assert tab.locator("figure svg").first.is_visible()
        assert tab.locator(".answer").is_visible()
