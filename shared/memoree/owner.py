"""Who owns an entity: the context it was created in, without pins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Owner:
    """Workspace and project, and the task and component where the context had them."""

    workspace_id: str
    project_id: str
    task_id: str | None
    component: str | None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"workspace_id": self.workspace_id, "project_id": self.project_id}
        if self.task_id is not None:
            wire["task_id"] = self.task_id
        if self.component is not None:
            wire["component"] = self.component
        wire["pins"] = []
        return wire
