"""Judge a Trace by the guidelines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.faults import Fault, Faults
from tracekit.guidelines.document import Judgement, document_of, shown, span
from tracekit.guidelines.effects import UntoldEffect, effect_of, losses_of
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import GUIDELINES, LEAST_COVERED, LackingError, LossTrial
from tracekit.progress import Progress
from tracekit.replay.jobs import TWIN
from tracekit.replay.run_policies import TWIN_FILE
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.calibration.twins import Twins
    from tracekit.guidelines.document import Verdict
    from tracekit.guidelines.interface import Finding, Guideline


@dataclass(frozen=True)
class Advice:
    """All guidelines, judged."""

    trace: Trace
    judged: tuple[Judgement, ...]
    """The judgements, sorted by guideline id."""
    faults: Faults = field(default_factory=Faults, compare=False)
    """Guidelines and effects that could not be computed."""

    @property
    def holding(self) -> tuple[Judgement, ...]:
        """The guidelines that hold."""
        return tuple(j for j in self.judged if j.verdict == "holds")

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values with stable keys (see docs/guidelines.md)."""
        return document_of(self.trace, self.judged, self.faults)

    def json(self) -> str:
        """Return the document as JSON text."""
        import orjson

        return orjson.dumps(self.document(), option=orjson.OPT_INDENT_2).decode()

    def markdown(self) -> str:
        """Return the document as Markdown."""
        from tracekit.guidelines.markdown import markdown

        return markdown(self.document(), self.faults)

    def html(self) -> str:
        """Return the document as one HTML page that needs no network."""
        from tracekit.guidelines.page import page

        return page(self.document(), self.faults)

    def __repr__(self) -> str:
        held = ", ".join(j.guideline.id for j in self.holding)
        return f"<{len(self.judged)} guidelines, {len(self.holding)} hold{': ' if held else ''}{held}>"


@explain_damage()
def guidelines(
    trace: Trace | str | Path,
    *,
    twin: str | Path | None = None,
    replay: str | Path | None = None,
    try_jobs: int | None = None,
    only: Sequence[str] = (),
    by: str | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Judge a Trace by the guidelines.

    If a guideline's function fails, its result says so, and the other guidelines are still judged.

    >>> import tracekit
    >>> advice = tracekit.guidelines("my-trace")  # doctest: +SKIP
    >>> [j.guideline.title for j in advice.holding]  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        The Trace to judge.
    twin : path, optional
        The twin.toml of this Trace. Effects of guidelines that hold are replayed in this twin.
    replay : path, optional
        The output of `tracekit replay --twin` for this Trace, whose twin is used.
    try_jobs : int, optional
        Calibrate a twin now, on the first N jobs.
    only : sequence of str
        Guideline ids. By default, all of them.
    by : str, optional
        The jobs column to use as tenant (see `Trace.by`). Replays of effects still use the tenant chosen at ingest.
    memory_limit : str, optional
        Maximum memory that DuckDB may use before it spills to disk, such as '2GB'.
    progress : Progress, optional
        Reports each guideline and replay.

    Raises
    ------
    TracekitError
        The Trace or the twin cannot be used, or the guideline does not exist.
    """
    if sum(given is not None for given in (twin, replay, try_jobs)) > 1:
        raise UsageError(
            "only one twin is used for all effects", where="twin", hint="give only one of twin, replay and try_jobs"
        )
    if try_jobs is not None and try_jobs < 1:
        raise UsageError("at least one job must be replayed", where="try_jobs")
    chosen = Trace.of(trace).by(by).divided
    opened = chosen.ingested
    progress = progress or Progress()
    twins: Twins | None = None
    if twin is not None or replay is not None or try_jobs is not None:
        from tracekit.calibration.twins import Twins

        file = twin_of_replays(Path(replay)) if replay is not None else None if twin is None else Path(twin)
        twins = Twins(opened, try_jobs or 0, file=file, progress=progress)
        if file is not None:
            twins.check()  # reject an unusable file even if no effect needs it
    return judge_all(Evidence(chosen, memory_limit), twins, only=only, progress=progress, faults=Faults(progress))


def twin_of_replays(out: Path) -> Path:
    """Return the twin.toml in the output of `tracekit replay --twin`.

    Raises
    ------
    UsageError
        The folder is not an output of `tracekit replay --twin`, or its replays have no twin.
    """
    file = out / TWIN / TWIN_FILE
    if file.is_file():
        return file
    hint = "make a twin with 'tracekit calibrate TRACE -o twin.toml', and give it with --twin"
    if (out / "comparison.parquet").is_file():
        raise UsageError("contains replays without a twin, which cannot show effects on the log", where=out, hint=hint)
    raise UsageError("is not an output of 'tracekit replay --twin'", where=out, hint=hint)


def judge_all(
    evidence: Evidence,
    twins: Twins | None,
    *,
    only: Sequence[str] = (),
    progress: Progress | None = None,
    faults: Faults | None = None,
) -> Advice:
    """Return the judgements by id, for all guidelines or only those in `only`. `faults` records guidelines that fail.

    Raises
    ------
    TracekitError
        The guideline does not exist, or a table cannot be read.
    """
    faults = Faults() if faults is None else faults
    chosen = [GUIDELINES.find(name) for name in only] if only else list(GUIDELINES.all().values())
    judged = []
    for guideline in sorted(chosen, key=lambda g: g.id):
        if progress is not None:
            progress.stage(guideline.title)
        judged.append(judge(guideline, evidence, twins, faults))
    return Advice(evidence.trace, tuple(judged), faults)


def judge(
    guideline: Guideline, evidence: Evidence, twins: Twins | None = None, faults: Faults | None = None
) -> Judgement:
    """Judge one guideline.

    It holds if every threshold is crossed and no 95 % interval reaches the other side of its threshold. If its function
    fails, the verdict is unknown. If only the effect fails, the finding is kept. `faults` records both.
    """
    faults = Faults() if faults is None else faults
    what = f"the guideline {guideline.id}"
    worded = faults.run(what, guideline.of, evidence.trace.tenant)
    if isinstance(worded, Fault):
        return Judgement(guideline, "cannot tell", (worded.remark,))
    judged = faults.run(what, _judged, worded, evidence)
    if isinstance(judged, Fault):
        return Judgement(worded, "cannot tell", (judged.remark,))
    if judged.verdict != "holds" or judged.finding is None:
        return judged
    tried = faults.run(f"the effect of the guideline {guideline.id}", _tried, judged, judged.finding, evidence, twins)
    return replace(judged, no_effect=tried.remark) if isinstance(tried, Fault) else tried


def _judged(guideline: Guideline, evidence: Evidence) -> Judgement:
    """Judge a guideline without its expected effect."""
    missing = evidence.lacks(guideline.tables, guideline.needs)
    if missing:
        return Judgement(guideline, "cannot tell", tuple(missing))
    try:
        finding = guideline.find(evidence)
    except LackingError as error:
        return Judgement(guideline, "cannot tell", error.sentences)
    absent = [measure.key for measure in guideline.measures if measure.key not in finding.numbers]
    if absent:
        raise ValueError(f"it returns no number '{absent[0]}'")
    verdict, why = _verdict(guideline, finding)
    return Judgement(guideline, verdict, why, finding)


def _tried(judged: Judgement, finding: Finding, evidence: Evidence, twins: Twins | None) -> Judgement:
    """Add the expected effect, or the reason why there is none, to a guideline that holds."""
    trial = judged.guideline.trial
    if trial is None:
        return replace(judged, no_effect=judged.guideline.no_trial)
    if twins is None:
        made = "Make one with 'tracekit calibrate TRACE -o twin.toml', and try the advice in it with '--twin twin.toml'"
        return replace(judged, no_effect=f"No simulation (twin) of the log was given. {made}.")
    if isinstance(trial, LossTrial):
        losses = losses_of(trial, finding, evidence, twins)
        return replace(judged, no_effect=losses) if isinstance(losses, str) else replace(judged, losses=losses)
    effect = effect_of(trial, twins)
    if isinstance(effect, UntoldEffect):
        return replace(judged, no_effect=effect.sentence, untold=effect)
    return replace(judged, no_effect=effect) if isinstance(effect, str) else replace(judged, effect=effect)


def _verdict(guideline: Guideline, finding: Finding) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict and the reasons for it."""
    measures = {measure.key: measure for measure in guideline.measures}
    headline = guideline.measures[0]
    n = finding.numbers[headline.key].n
    if n < guideline.least_n:
        return "cannot tell", (f"{n:,} {headline.n_of} are too few: {guideline.least_n:,} are needed.",)
    unknown, missed, unsure = [], [], []
    for threshold in guideline.thresholds:
        number, measure = finding.numbers[threshold.key], measures[threshold.key]
        limit = f"{threshold.side} {shown(threshold.value, measure.unit)}"
        if number.value is None:
            unknown.append(f"{_capital(measure.what)} cannot be computed.")
        elif not threshold.crossed(number.value):
            missed.append(f"{_capital(measure.what)}: {shown(number.value, measure.unit)} (needed: {limit}).")
        elif not threshold.settled(number) and number.low is not None and number.high is not None:
            ends = span(number.low, number.high, measure.unit)
            unsure.append(f"{_capital(measure.what)}: {ends} (95 %), which may be chance (needed: {limit}).")
    # One clearly missed threshold is enough, regardless of the others.
    if missed:
        if finding.covers is not None and finding.covers < LEAST_COVERED:
            few, needed = shown(finding.covers, "share"), shown(LEAST_COVERED, "share")
            text = f"Only {few} of {finding.covers_of} are measured, so the problem may be elsewhere"
            return "cannot tell", (f"{text} ({needed} are needed).", *missed)
        return "does not hold", tuple(missed)
    if unknown or unsure:
        return "cannot tell", (*unknown, *unsure)
    return "holds", ()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
