"""The file of a plan: JSON with a digest, by which an edit or damage is noticed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.choices import to_json
from milbench.experiment.plan import Plan, SearchRecord, TaskInfo
from milbench.experiment.questions import Questions
from milbench.experiment.spec import Spec

OF_LAUNCH = ("run", "origin", "changed")
"""What the spec in a plan of an earlier version also said, of its last launch."""


class SpecOfBefore(Questions):
    """The spec in a plan of an earlier version, where it is no `Spec` of this one.

    What a report asks for is checked, and whatever else the spec said is kept as it is.
    """

    model_config = ConfigDict(extra="allow")


_SEARCH: TypeAdapter[SearchRecord | None] = TypeAdapter(SearchRecord | None)


class _Content(BaseModel):
    """What the file of a plan says, but for its digest."""

    spec: dict[str, Any]
    cells: list[dict[str, Any]]
    tasks: dict[str, TaskInfo] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)
    search: SearchRecord | None = None
    origin: str = ""
    is_changed: bool = False
    command: str = ""
    launched: str = ""
    precision: str = ""
    neutral: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def plan(self) -> Plan:
        return Plan(
            spec=_spec_of(self.spec),
            cells=[Cell.from_record(record) for record in self.cells],
            tasks=self.tasks,
            notes=self.notes,
            search=self.search,
            origin=self.origin or str(self.spec.get("origin", "")),
            is_changed=self.is_changed or bool(self.spec.get("changed")),
            command=self.command,
            launched=self.launched,
            precision=self.precision,
            neutral=self.neutral,
        )


def _spec_of(content: Mapping[str, Any]) -> Spec | SpecOfBefore:
    """Return the spec of a plan. Raises ValidationError where even a report could not ask by it."""
    said = {name: value for name, value in content.items() if name not in OF_LAUNCH}
    try:
        return Spec.model_validate(said)
    except ValidationError:
        return SpecOfBefore.model_validate(said)


def plan_to_json(plan: Plan) -> str:
    """Return a plan as JSON, with a digest of it."""
    content = {
        "spec": plan.spec.model_dump(mode="json"),
        "cells": [cell.to_record() for cell in plan.cells],
        "tasks": {key: asdict(info) for key, info in plan.tasks.items()},
        "notes": plan.notes,
        "search": _SEARCH.dump_python(plan.search, mode="json", by_alias=True),
        "origin": plan.origin,
        "is_changed": plan.is_changed,
        "command": plan.command,
        "launched": plan.launched,
        "precision": plan.precision,
        "neutral": plan.neutral,
    }
    # The digest is that of what will be read: JSON turns some values into others, such as tuples into lists.
    written = json.loads(json.dumps(content))
    return json.dumps(content | {"digest": _digest(written)})


def plan_from_json(text: bytes) -> Plan:
    """Return the plan that `plan_to_json` wrote. Raises UsageError where it is none, or something has changed it.

    Plans of earlier versions have no digest: of these it is not known.
    """
    try:
        plan = _Content.model_validate_json(text).plan()
        # Whatever needs a label or a task later finds it.
        for cell in plan.cells:
            plan.label(cell)
            plan.info(cell)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        why = error.errors()[0]["msg"]
        raise UsageError(
            f"the plan is damaged or of another version of milbench ({place}: {why})"
        ) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"the plan is damaged ({error!r})") from None
    content = json.loads(text)
    digest = content.pop("digest", None)
    if digest is not None and digest != _digest(content):
        raise UsageError("the plan is not as milbench wrote it: it was edited, or damaged")
    return plan


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(content).encode()).hexdigest()
