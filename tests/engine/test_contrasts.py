"""Contrasts of a spec: which variants they name, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from milbench import UsageError
from milbench.api.plan import Plan
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from tests._helpers.command_line import TINY

HEADS = {"noisy-or": {"head": ["softmax", "sigmoid"]}}


def contrast(first: str, second: str, name: str = "asked", **more: Any) -> dict[str, Any]:
    return {"name": name, "first": first, "second": second, **more}


def plan(*contrasts: dict[str, Any], **values: Any) -> Plan:
    given = {"name": "t", "losses": ["exact", "noisy-or"], "tasks": [TINY], "loss": HEADS, "contrasts": contrasts}
    return make_plan(make_spec(given | values))


def test_a_contrast_finds_its_variants_on_every_task_and_survives_json() -> None:
    found = plan(contrast("noisy-or head=softmax", "exact", margin={"set_error": 0.01}))
    (named,) = found.contrasts
    assert named.variants == {"tiny": (("noisy-or head=softmax", ""), ("exact", ""))}
    assert Plan.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([contrast("noisy-or head=softmx", "exact")], "unknown variant.*did you mean 'noisy-or head=softmax'"),
        ([contrast("exakt", "noisy-or head=softmax")], "contrast 'asked' 'exakt'; did you mean 'exact'"),
        ([contrast("noisy-or", "exact")], "unknown variant in contrast 'asked' 'noisy-or'"),
        ([contrast("exact", "exact")], "first and second are one variant"),
        ([contrast("exact", "noisy-or head=softmax", margin={"set_eror": 0.1})], "did you mean 'set_error'"),
        (
            [contrast("exact", "noisy-or head=softmax"), contrast("noisy-or head=softmax", "exact", name="reversed")],
            "'asked' and 'reversed' have the same variants",
        ),
    ],
)  # fmt: skip
def test_what_names_no_two_variants_is_refused(given: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan(*given)


def test_a_contrast_whose_variant_flags_have_left_out_is_left_out_with_a_remark() -> None:
    both = contrast("noisy-or head=softmax", "exact"), contrast("one-vs-rest", "exact", name="other")
    found = plan(*both, changed=True)
    assert [c.name for c in found.contrasts] == ["asked"]
    (note,) = found.notes
    assert "'other' was left out" in note
    assert "unknown variant in contrast 'other' 'one-vs-rest'" in note
