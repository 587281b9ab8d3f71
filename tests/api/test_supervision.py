from __future__ import annotations

from typing import get_args

from milbench import Loss, Supervision, TargetKind
from milbench.api.registry import losses
from milbench.api.supervision import ORACLE_SUPERVISION, SUPERVISIONS


def test_every_kind_of_supervision_has_a_description_and_a_target() -> None:
    assert tuple(SUPERVISIONS) == get_args(Supervision)
    assert all(text.lower().startswith(f"{kind} supervision: ") for kind, text in SUPERVISIONS.items())
    assert list(SUPERVISIONS)[-1] == ORACLE_SUPERVISION
    targets = dict(zip(SUPERVISIONS, get_args(TargetKind), strict=True))
    built_in: list[type[Loss]] = [losses().cls(name) for name in losses().names()]
    assert {cls.supervision for cls in built_in} == set(SUPERVISIONS)
    # Where a bag is one position, its label says where the class is.
    assert all(cls.target_kind in ("labels", targets[cls.supervision]) for cls in built_in)
