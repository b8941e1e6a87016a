"""A workload file as a person has it: requests alone, or as the page's editor saves them, with the settings that were chosen there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidWorkload, shown
from core.workload.workload import Workload, from_file


@dataclass(frozen=True)
class Saved:
    """Requests, and the limits, model and device to run them with, where the file says so."""

    workload: Workload
    config: EngineConfig = field(default_factory=EngineConfig)
    model: str | None = None
    device: str | None = None

    @classmethod
    def load(cls, path: Path) -> Saved:
        """Raises InvalidWorkload naming file and fault."""
        return from_file(path, cls.from_json)

    @classmethod
    def from_json(cls, data: object) -> Saved:
        """data: a workload's JSON, or `{"workload", "config", "model", "device"}`. Raises InvalidWorkload, InvalidRequest or InvalidConfig."""
        if not isinstance(data, dict) or "workload" not in data:
            return cls(Workload.from_json(data))
        if unknown := set(data) - {"workload", "config", "model", "device"}:
            raise InvalidWorkload(f"A saved workload has no field {shown(min(unknown, key=str))}.")
        config = data.get("config", {})
        if not isinstance(config, dict):
            raise InvalidWorkload("config must be an object.")
        return cls(
            Workload.from_json(data["workload"]), EngineConfig.from_json(config), _text(data, "model"), _text(data, "device")
        )


def _text(data: dict[str, Any], name: str) -> str | None:
    given = data.get(name)
    if given is not None and not isinstance(given, str):
        raise InvalidWorkload(f"{name} must be text, not {shown(given)}.")
    return given
