"""Contracts as models, for the tests of what they mean."""

from typing import Any

import pytest
from pydantic import ValidationError

from loopd.domain.contract import Goal

SMALL: dict[str, Any] = {"goal": "g", "objective": "The end.", "criteria": [{"run": "pytest -q"}]}

EVERYTHING: dict[str, Any] = {
    "goal": "retry-client",
    "objective": {"file": "specs/retry.md"},
    "references": ["SPEC.md", "design/*.png"],
    "workspace": ".",
    "isolation": "clone",
    "verification": "clean",
    "sandbox": {"write": ["/opt/x"]},
    "agent": {
        "command": ["prog", "arg"],
        "prompt": "file",
        "usage": {"pattern": "cost=(?P<cost>.*)"},
        "final": "^done",
    },
    "environment": {
        "carry": [".venv", "node_modules", ".env"],
        "mount": ["~/data/fineweb"],
        "env": {"CI": "true", "DATABASE_URL": "inherit", "WEB_PORT": "free-port"},
        "services": {"up": "docker compose up -d --wait", "down": "docker compose down -v"},
        "network": "host",
    },
    "setup": ["python -m venv .venv", [".venv/bin/pip", "install", "-e", ".[test]"]],
    "setup_when": ["pyproject.toml"],
    "scope": {"allow": ["src/**", "docs/**"], "add": ["tests/**"], "protect": [".github/**"], "max_files": 40},
    "constraints": ["No new runtime dependency.", {"text": "The public API stays as it is.", "check": "api"}],
    "tamper": 2,
    "criteria": [
        {
            "name": "tests",
            "run": "pytest -q --junitxml={out}/junit.xml",
            "report": {"file": "{out}/junit.xml", "may_go": ["tests/old/**"]},
            "baseline": "fail",
            "timeout": "10m",
            "runs": 3,
            "rule": "majority",
            "protocol": "none",
        },
        {"name": "api", "use": "coverage", "with": {"source": ["src"]}, "require": {"line_percent": ">= 90"}},
        {
            "name": "speed",
            "use": "benchmark",
            "with": {"run": "python bench.py", "runs": 7},
            "require": {"median_s": "<= 0.9 * baseline"},
            "layer": "slow",
            "lock": "quiet",
            "confirm": "again",
            "baseline_metrics": {"median_s": 1.42},
        },
        {
            "name": "other-inputs",
            "run": "pytest -q {sealed}",
            "sealed": "../checks/retry",
            "visibility": "hidden",
            "max_checks": 3,
        },
        {
            "name": "review",
            "use": "judge",
            "role": "evaluator",
            "with": {"rubric": ["Backoff is capped."]},
            "needs": ["tests"],
        },
    ],
    "evidence": ["REPORT.md", "plots/*.png", "screenshot:diff.png"],
    "watch": {"loss": {"file": "train.csv", "column": "loss"}},
    "progress": {"metric": "speed.median_s", "better": "lower"},
    "keep": "better",
    "until": "budget",
    "stages": [
        {"name": "pilot", "criteria": ["tests"], "with": {"cases": 20}, "budget": {"attempts": 3, "cost": "1 USD"}},
        {"name": "full"},
    ],
    "budget": {
        "attempts": 30,
        "time": "8h",
        "cost": "20 USD",
        "tokens": "20M",
        "attempt": {"time": "45m", "idle": "20m", "cost": "2 USD", "turns": 200},
        "waiting": "12h",
    },
    "roles": {
        "executor": {"model": "sonnet", "args": ["--x"], "env": ["TOKEN"], "fallback": "codex"},
        "planner": {"agent": "claude", "model": "opus"},
        "evaluator": {"agent": "codex"},
        "visual": {"agent": "gemini"},
    },
    "context": "continue-until-stuck",
    "ladder": ["rephrase", "fresh", "advise", {"executor": {"agent": "codex"}}, "restore-best", "stop"],
    "templates": "prompts/",
    "share": "evidence",
    "deliver": {"pr": "draft"},
    "notify": [{"on": ["stuck", "blocked", "halted"], "to": "env:PAGER"}, "desktop"],
}


def goal_of(**changes: Any) -> Goal:
    """The smallest contract with changes."""
    return Goal.model_validate(SMALL | changes)


def first_message(data: dict[str, Any]) -> str:
    """What is wrong first, in words."""
    with pytest.raises(ValidationError) as caught:
        Goal.model_validate(data)
    return caught.value.errors()[0]["msg"]
