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


class PublishedSpec(Questions):
    """The spec of a report that was published before specs had their present fields.

    The fields that a report asks for are checked. All other fields are kept as they are.
    """

    model_config = ConfigDict(extra="allow")


_SEARCH: TypeAdapter[SearchRecord | None] = TypeAdapter(SearchRecord | None)


class _Content(BaseModel):
    """What the file of a plan says, without its digest."""

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
        """Return the plan. Raises ValidationError where its spec or one of its cells is wrong."""
        cells = [Cell.from_record(record) for record in self.cells]
        return Plan(
            spec=_spec_of(self.spec),
            cells=cells,
            tasks=self.tasks,
            notes=self.notes,
            search=self.search,
            origin=self.origin,
            is_changed=self.is_changed,
            command=self.command,
            launched=self.launched,
            precision=self.precision,
            neutral=self.neutral,
        )


def _spec_of(content: Mapping[str, Any]) -> Spec | PublishedSpec:
    """Return the spec of a plan. Raises ValidationError where not even a report can use it."""
    try:
        return Spec.model_validate(content)
    except ValidationError:
        return PublishedSpec.model_validate(content)


def plan_to_json(plan: Plan) -> str:
    """Return a plan as JSON, with a digest of it."""
    cells = [cell.to_record() for cell in plan.cells]
    tasks = {key: asdict(info) for key, info in plan.tasks.items()}
    search = _SEARCH.dump_python(plan.search, mode="json", by_alias=True)
    content = {
        "spec": plan.spec.model_dump(mode="json"),
        "cells": cells,
        "tasks": tasks,
        "notes": plan.notes,
        "search": search,
        "origin": plan.origin,
        "is_changed": plan.is_changed,
        "command": plan.command,
        "launched": plan.launched,
        "precision": plan.precision,
        "neutral": plan.neutral,
    }
    # The digest is made from the content as it will be read, since JSON changes some values: it
    # turns tuples into lists, for example.
    written = json.loads(json.dumps(content))
    return json.dumps(content | {"digest": _digest(written)})


def plan_from_json(text: bytes) -> Plan:
    """Return the plan that `plan_to_json` wrote.

    Raises UsageError where the text is no plan, or was changed.
    """
    try:
        plan = _Content.model_validate_json(text).plan()
        _check_is_complete(plan)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        why = first["msg"]
        raise UsageError(
            f"the plan is damaged or of another version of milbench ({key}: {why})"
        ) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"the plan is damaged ({error!r})") from None
    _check_digest(text)
    return plan


def _check_is_complete(plan: Plan) -> None:
    """Raise KeyError, TypeError or AttributeError where a cell has no label or no task."""
    for cell in plan.cells:
        plan.label(cell)
        plan.info(cell)


def _check_digest(text: bytes) -> None:
    """Raise UsageError where the text of a plan is not what its digest was made of."""
    content = json.loads(text)
    digest = content.pop("digest", "")
    if digest != _digest(content):
        raise UsageError("the plan is not as milbench wrote it: it was edited, or damaged")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(content).encode()).hexdigest()
