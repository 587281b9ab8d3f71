"""The descriptions of metrics, and the names that some of them had in earlier versions."""

from __future__ import annotations

from milbench.api.metric_info import METRICS, RENAMED_METRICS, describe


def test_an_earlier_name_is_known_by_the_one_of_today_and_by_no_other() -> None:
    assert RENAMED_METRICS["transcription_error_looks"] == "transcription_error_rescored"
    for earlier, today in RENAMED_METRICS.items():
        assert earlier not in METRICS
        assert today in METRICS


def test_the_rescored_decoder_is_named_as_such() -> None:
    assert describe("transcription_error_rescored").label == "transcription error, components rescored"
