"""Reports that a check writes, read as what they are: text from code that is not trusted.

A report that is missing, too long, malformed or incomplete is an error, never a pass. Here is what all share,
and loopd's own JSON (`loopd.verifier/1`); JUnit XML is in `junit`.
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopd.adapters.plain_file import PlainFileError, read_plain
from loopd.domain.text import head_and_tail, safe_line, safe_text
from loopd.domain.verdict import Finding, Metric

SIZE_LIMIT_BYTES = 64 * 1024 * 1024
ID_LIMIT = 500
MESSAGE_BYTES = 2_000
SCHEMA = "loopd.verifier/1"


class ReportError(Exception):
    """A report that is missing, too big, malformed or incomplete; the message says which."""


def read_report(path: Path) -> bytes:
    """The bytes of a report. Raises `ReportError`; a link, a pipe or a device is refused, never followed."""
    try:
        return read_plain(path, SIZE_LIMIT_BYTES)
    except PlainFileError as error:
        raise ReportError(f"the report {error}") from None


class _Strict(BaseModel):
    # Built at the first report: most checks write none, and every run waits for what is built when it starts.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


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
