"""The record of a run as one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import config
from m3.report import FinalOutput

SCHEMA_VERSION = 1


def trace_dict(output: FinalOutput) -> dict[str, Any]:
    """Plain data of a finished run: its steps and its result."""
    return {
        "schema": SCHEMA_VERSION,
        "version": config.VERSION,
        "query": output.query,
        "steps": [asdict(step) for step in output.steps],
        "result": output.to_dict(),
    }


def trace_json(output: FinalOutput) -> str:
    """The trace as JSON text, without any secret."""
    return config.redact(json.dumps(trace_dict(output), ensure_ascii=False, indent=1)) + "\n"
