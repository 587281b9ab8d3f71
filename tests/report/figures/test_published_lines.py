"""Published values as lines in the charts, and the sentences that explain them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from milbench.report.figures import charts, published_lines
from milbench.report.study import Study
from tests._helpers.report_data import ONE, TWO, make_results


def test_published_values_are_matched_by_task_loss_and_metric() -> None:
    study = Study(make_results(None, TWO, epochs=2))
    found = published_lines.of_losses(study, "extended-digits")
    assert {row.loss: facts[0].value for row, facts in found.items()} == {"exact": 0.004, "max-pooling": 0.08}
    assert published_lines.of_losses(study, "synthetic-bags") == {}
    assert "exact 0.4 % (Li 2018, Supplementary A)" in published_lines.caption_of_lines(study, "extended-digits")
    none = Study(make_results(None, TWO, epochs=2, published=[]))
    assert published_lines.caption_of_lines(none, "extended-digits") == ""


def test_methods_that_are_no_losses_here_are_lines_with_a_legend() -> None:
    results = make_results(None, TWO, ONE, 3, 2)
    other = {"task": "extended-digits", "loss": "", "metric": "instance_error"}
    theirs = [
        other | {"value": value, "source": f"{name} 2014", "method": name, "data": "sha256"}
        for name, value in (("Goodfellow", 0.04), ("Ba", 0.039))
    ]
    study = Study(replace(results, published=[*theirs, theirs[0] | {"metric": "set_error"}, *results.published]))
    assert {row.loss for row in published_lines.of_losses(study, "extended-digits")} == {
        "exact",
        "max-pooling",
    }
    caption = published_lines.caption_of_lines(study, "extended-digits")
    assert caption.endswith("no losses here: Ba 3.9 % (Ba 2014); Goodfellow 4 % (Goodfellow 2014).")
    for make in (charts.seeds_figure, charts.curves_figure):
        figure = make(study, "extended-digits")
        assert figure is not None
        axes = figure.axes[0]
        lines = {line.get_label(): line for line in axes.lines}
        for name, value in (("Ba, 3.9 %", 3.9), ("Goodfellow, 4 %", 4.0)):
            data = lines[name].get_xdata() if make is charts.seeds_figure else lines[name].get_ydata()
            assert list(np.asarray(data)) == [value, value]
        assert {text.get_text() for text in figure.legends[0].get_texts()} >= {"Ba, 3.9 %", "Goodfellow, 4 %"}
