"""loopd's own report, `loopd.verifier/1`: what a verifier may answer, in JSON."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopd.adapters.verifiers.reports import ID_LIMIT, MESSAGE_BYTES, ReportError
from loopd.domain.text import head_and_tail, safe_line, safe_text
from loopd.domain.verdict import Finding, Metric

SCHEMA = "loopd.verifier/1"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


_Line = Annotated[str, Field(max_length=1_000)]


class _Metric(_Strict):
    value: float
    unit: str = Field("", max_length=40)
    better: Literal["higher", "lower", ""] = ""


class _Finding(_Strict):
    message: str = Field(max_length=20_000)
    level: Literal["error", "warning", "note"] = "error"
    rule: _Line = ""
    file: _Line = ""
    line: int = Field(0, ge=0)


class VerifierReport(_Strict):
    """`report.json`, as a verifier that speaks the protocol may write it."""

    schema_: Literal["loopd.verifier/1"] = Field(alias="schema")
    status: Literal["pass", "fail", "error", "skip"]
    metrics: dict[_Line, _Metric] = Field({}, max_length=1_000)
    findings: list[_Finding] = Field([], max_length=10_000)
    artifacts: list[_Line] = Field([], max_length=1_000)
    summary: str = ""
    evidence: str = ""

    def domain_metrics(self) -> dict[str, Metric]:
        """The metrics as facts."""
        return {name: Metric(m.value, m.unit, m.better) for name, m in self.metrics.items()}

    def domain_findings(self) -> tuple[Finding, ...]:
        """The findings as facts, safe to show."""
        return tuple(
            Finding(
                message=head_and_tail(safe_text(found.message), MESSAGE_BYTES),
                level=found.level,
                rule=safe_line(found.rule, ID_LIMIT),
                file=safe_line(found.file, ID_LIMIT),
                line=found.line,
            )
            for found in self.findings
        )


def parse_loopd(data: bytes) -> VerifierReport:
    """A `loopd.verifier/1` report, validated strictly. Raises `ReportError` naming every fault."""
    try:
        value = json.loads(data, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
        return VerifierReport.model_validate(value)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc'])) or 'report'}: {e['msg']}" for e in error.errors()[:5]]
        raise ReportError("the report does not follow " + SCHEMA + ": " + safe_line("; ".join(faults), 600)) from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"the report is not JSON: {safe_line(str(error))}") from None


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")
