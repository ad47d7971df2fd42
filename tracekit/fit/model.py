"""Write, read and check workload.json, the fitted workload of a Trace, and show it as tables.

schemas/workload-1.json is the contract. This module adds the checks that a JSON Schema cannot express: parameter
domains, shares that sum to 1, and a chosen family that was fitted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracekit import resources
from tracekit.errors import UsageError
from tracekit.notebook import Brief
from tracekit.outputs import StagedFiles, check_files, output_errors
from tracekit.text import count, counted, duration
from tracekit.timezones import is_known_zone

if TYPE_CHECKING:
    from collections.abc import Iterator


VERSION = 1
"""Version of workload.json, which increases with each change that breaks readers."""
DIGITS = 10
"""Number of significant digits of every number in workload.json."""

_HINT = "make one with 'tracekit fit TRACE -o workload.json'"


@dataclass(frozen=True)
class WorkloadModel:
    """The fitted workload of a Trace.

    Examples
    --------
    >>> model = WorkloadModel({"version": 1})
    >>> model.document["version"]
    1
    """

    document: dict[str, Any]
    """The keys and values in workload.json."""

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return self._brief.html()

    @property
    def _brief(self) -> Brief:
        document = self.document
        source, arrivals, users = (document.get(part) or {} for part in ("source", "arrivals", "users"))
        entries = document.get("run_times") or []
        whole = self.run_time() if entries else None
        medians = [value for share, value in (whole or {}).get("quantiles_s") or () if share == 0.5]
        median = f", median {duration(medians[0])}" if medians else ""
        process = arrivals.get("process")
        seed, best = document.get("seed"), (document.get("scores") or {}).get("best")
        return Brief.of(
            f"Workload fitted to {self.origin}" if source else "Workload",
            [
                ("arrivals", f"{process} over {arrivals['days']:.1f} days" if process else None),
                ("run time", f"{whole['chosen'] or 'as observed'}{median}" if whole else None),
                ("groups", f"{count(len(entries))} of run times" if entries else None),
                ("tenants", count(len(users["tenants"])) if users.get("tenants") else None),
                ("nearest", f"{best}, of the generators that were scored" if best else None),
                ("seed", None if seed is None else str(seed)),
            ],
        )

    @property
    def origin(self) -> str:
        """Description of the jobs that the model was fitted to."""
        source = self.document["source"]
        return f"{source['jobs']:,} jobs of format {source['format']}"

    @property
    def run_times(self) -> list[dict[str, Any]]:
        """One entry per group of jobs, in the order of workload.json."""
        found: list[dict[str, Any]] = self.document["run_times"]
        return found

    def run_time(self, measure: str = "until_end", **key: str | None) -> dict[str, Any] | None:
        """Return the entry of one group, or None if the model has no such entry.

        Parameters
        ----------
        measure : {"until_end", "demand"}
            The run time regardless of how the job ended, or the run time that the job would have had if it had not been
            cancelled or killed.
        **key
            gpu_class, status, cluster, vc; an omitted key means all.
        """
        wanted = {"measure": measure, **dict.fromkeys(("gpu_class", "status", "cluster", "vc")), **key}
        return next((e for e in self.run_times if all(e[k] == v for k, v in wanted.items())), None)

    @property
    def whole(self) -> dict[str, Any]:
        """The run times of all jobs, regardless of how they ended."""
        found = self.run_time()
        if found is None:
            raise UsageError("the model has no run times", hint="fit a Trace whose jobs ran")
        return found

    def shape(self, entry: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Return the fit that a group uses, which is its own or its pool's, and the factor on its durations."""
        name = entry["pooled_to"]
        if name is None:
            return entry, 1.0
        if name == "neighbours":
            found = _pool(self.document, entry)
        else:
            found = self.run_time(entry["measure"], **({} if name == "all" else {name: entry[name]}))
        return found or self.whole, entry["median_ratio"] or 1.0

    def to_json(self) -> bytes:
        """Return workload.json as bytes, with 10 significant digits and a fixed key order."""
        return orjson.dumps(rounded(self.document), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write workload.json completely or not at all.

        Raises
        ------
        UsageError
            `read` would reject the file.
        OutputError
            The file exists and `force` is not set, or it cannot be written.
        """
        target = Path(path)
        check_files(target, force=force)
        data = self.to_json()
        for problem in _problems(orjson.loads(data)):
            raise UsageError(f"the model cannot be used: {problem}", hint="fit other jobs of the log")
        with output_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with StagedFiles(target, force=force) as staged:
                staged.part(target).write_bytes(data)
                staged.commit()
        return target

    @classmethod
    def read(cls, path: str | Path) -> WorkloadModel:
        """Read and check a workload.json.

        Raises
        ------
        UsageError
            The file cannot be read or has another version, a part is missing, or a parameter is outside its domain.
        """
        place = Path(path)
        try:
            document = orjson.loads(place.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=place, hint=_HINT) from error
        except orjson.JSONDecodeError as error:
            raise UsageError(f"is not JSON: {error.msg}", where=place, line=error.lineno, hint=_HINT) from error
        return cls.checked(document, place)

    @classmethod
    def checked(cls, document: Any, where: Path | None = None) -> WorkloadModel:
        """Return the model in a document, or raise an error that describes what is wrong with the document.

        Raises
        ------
        UsageError
            As in `read`.
        """
        if not isinstance(document, dict) or document.get("format") != "tracekit-workload":
            raise UsageError("is not a workload model", where=where, hint=_HINT)
        if document.get("version") != VERSION:
            raise UsageError(
                f"has version {document.get('version')}, but tracekit reads {VERSION}",
                where=where,
                hint="fit again",
            )
        for problem in _problems(document):
            raise UsageError(problem, where=where, hint="fit again, or correct the file")
        return cls(document)


def rounded(value: Any) -> Any:
    """Round every number in a document to 10 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


def _pool(document: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the pool of size classes that a group takes its shape from, or None if the file does not have it."""
    key = (entry["measure"], entry.get("pooled_status", entry["status"]), entry.get("pooled_classes"))
    pools = document.get("run_time_pools", [])
    return next((p for p in pools if (p["measure"], p["status"], p["gpu_classes"]) == key), None)


def _problems(document: dict[str, Any]) -> Iterator[str]:
    """Yield problems, at least the first of each kind."""
    import jsonschema

    schema = orjson.loads((resources.folder("schemas") / f"workload-{VERSION}.json").read_bytes())
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        place = "/".join(map(str, error.absolute_path)) or "the file"
        text = error.message if len(error.message) < 160 else f"{error.message[:80]} ... {error.message[-60:]}"
        yield f"{place}: {text}"
        return
    yield from _bad_families(document)
    yield from _bad_arrivals(document["arrivals"])
    yield from _bad_shares(document)
    yield from _bad_lengths(document)


def _bad_families(document: dict[str, Any]) -> Iterator[str]:
    from tracekit.fit.families import FAMILIES

    whole = False
    groups = [("run_times", e) for e in document["run_times"]]
    groups += [("failures/run_time_to_failure", e) for e in document["failures"]["run_time_to_failure"]]
    groups += [("run_time_pools", {**e, "pooled_to": None}) for e in document.get("run_time_pools", [])]
    for group in document.get("node_failures", {}).get("groups") or []:
        groups += [("node_failures", {**group[part], "pooled_to": None}) for part in ("until_failure", "away")]
    for place, entry in groups:
        if entry["pooled_to"] is not None:
            if entry["pooled_to"] == "neighbours" and _pool(document, entry) is None:
                yield f"{place}: run_time_pools lacks the size classes {entry.get('pooled_classes')}"
            continue
        whole |= place == "run_times" and all(entry[k] is None for k in ("gpu_class", "status", "cluster", "vc"))
        fitted = {f["family"]: f for f in entry["families"] if "parameters" in f}
        for name, fit in fitted.items():
            problem = FAMILIES[name].problem(fit["parameters"]) if name in FAMILIES else f"no family '{name}'"
            if problem:
                yield f"{place}: {problem}"
        if entry["chosen"] is not None and entry["chosen"] not in fitted:
            yield f"{place}: the chosen family '{entry['chosen']}' has no parameters"
        if entry["chosen"] is None and entry["quantiles_s"] is None and entry["n"] > 0 and entry["observed"] > 0:
            yield f"{place}: a group without a chosen family needs quantiles_s"
    if document["run_times"] and not whole:
        yield "run_times: the entry of all jobs is missing"


def _bad_arrivals(arrivals: dict[str, Any]) -> Iterator[str]:
    process = arrivals["process"]
    if process is None:
        if "reason" not in arrivals:
            yield "arrivals: there is no process, and 'reason', which explains why, is missing"
        return
    for part in ("rate", "batch", "start", "days", "step_s", "timezone"):
        if part not in arrivals:
            yield f"arrivals: '{part}' is missing"
            return
    if len(arrivals["rate"]["profile"]) not in (1, 24, 168) or not sum(arrivals["rate"]["profile"]) > 0:
        yield "arrivals/rate: the profile needs 1, 24 or 168 factors that are not all 0"
    yield from _bad_pieces(arrivals["rate"])
    if process == "sessions":
        yield from _bad_sessions(arrivals)
    elif process != "poisson":
        yield from _bad_process(process, arrivals["candidates"])


def _bad_sessions(arrivals: dict[str, Any]) -> Iterator[str]:
    sessions = arrivals.get("sessions")
    if sessions is None:
        yield "arrivals: the process is 'sessions', but the sessions are missing"
        return
    starts = sessions["starts"]
    yield from _bad_pieces(starts["rate"])
    if starts["process"] != "poisson":
        yield from _bad_process(starts["process"], starts["candidates"])
    for place, part in (("starts/batch", starts["batch"]), ("size", sessions["size"])):
        if len(part["sizes"]) != len(part["shares"]) or not sum(part["shares"]) > 0:
            yield f"arrivals/sessions/{place}: {len(part['shares'])} shares for {len(part['sizes'])} sizes"


def _bad_pieces(rate: dict[str, Any]) -> Iterator[str]:
    pieces = rate.get("pieces") or []
    edges = [0.0, *(p["to_day"] for p in pieces)]
    joined = all(p["from_day"] == before for p, before in zip(pieces, edges, strict=False))
    if not joined or any(late <= early for early, late in itertools.pairwise(edges)):
        yield "arrivals/rate: each piece must begin where the previous piece ends, and the first on day 0"


def _bad_process(process: str, candidates: list[dict[str, Any]]) -> Iterator[str]:
    needs = {"gamma_renewal": ("a", "scale", "least"), "mmpp": ("quiet_rate", "busy_rate", "to_busy", "to_quiet")}
    found = next((c["parameters"] for c in candidates if c["process"] == process), None)
    if found is None:
        yield f"arrivals: the process '{process}' is not among the candidates"
        return
    for name in needs[process]:
        if not isinstance(found.get(name), int | float) or not found[name] > 0:
            yield f"arrivals: {process}: {name} must be a number above 0, not {found.get(name)}"
            return
    if process == "gamma_renewal" and found["least"] > 100 * found["scale"] * max(found["a"], 1.0):
        yield f"arrivals: {process}: no gap is above least = {found['least']:g}"


def _bad_shares(document: dict[str, Any]) -> Iterator[str]:
    sums = {
        "sizes/requests": (sum(r["share"] for r in document["sizes"]["requests"]), document["sizes"]["left_out_share"]),
        "users/tenants": (sum(t["share"] for t in document["users"]["tenants"]), document["users"]["other_share"]),
    }
    for place, (listed, left) in sums.items():
        if abs(listed + left - 1) > 1e-6:
            yield f"{place}: the shares sum to {listed + left:g}, not to 1"
    zone = document["arrivals"].get("timezone", "UTC")
    if not is_known_zone(zone):
        yield f"arrivals: no time zone '{zone}'"


def _bad_lengths(document: dict[str, Any]) -> Iterator[str]:
    """Yield a problem for each list that has the wrong length or repeats an entry."""
    arrivals, correlation = document["arrivals"], document["correlation"]
    pairs = [("statuses/groups", g["attempt_shares"], g["attempts"]) for g in document["statuses"]["groups"]]
    pairs += [("correlation/vcs", v["scores"], correlation["levels"]) for v in correlation["vcs"]]
    if "batch" in arrivals:
        pairs.append(("arrivals/batch", arrivals["batch"]["shares"], arrivals["batch"]["sizes"]))
    for place, own, other in pairs:
        if len(own) != len(other):
            yield f"{place}: {len(own)} values for {len(other)}"
            return
    owners = [(row["cluster"], row["vc"]) for row in document["cluster"]["capacity"]]
    if len(set(owners)) < len(owners):
        yield "cluster/capacity: a VC is named twice"


# Show a model's run times and the generators' scores as tables.

WORKLOADS = {
    "model": "model",
    "resample": "resample",
    "hybrid_arrivals": "hybrid, arrivals of the log",
    "hybrid_jobs": "hybrid, jobs of the log",
    "poisson_jobs": "jobs one by one (naive)",
    "poisson_lognormal": "jobs one by one, lognormal (naive)",
}
"""Names of scored workloads in tables."""
SCORED_FIGURES = (
    *("gap_distribution", "gap_variation", "hourly_variation", "gpu_hours_per_day", "size_mix", "run_time_p99_s"),
    *("wait_fifo_mean_s", "wait_easy_mean_s", "wait_srtf_mean_s"),
)
"""Rows of `tracekit.fit.scores` that the short table shows as columns."""


def summary_rows(model: WorkloadModel) -> tuple[list[str], list[list[object]]]:
    """Return headers and rows: each run time group with its family, both criteria and the goodness of fit."""
    headers = ["run time of", "measure", "jobs", "censored", "family", "least AIC", "AIC", "BIC", "KS", "A-D", "p (KS)"]
    rows: list[list[object]] = []
    for entry in model.run_times:
        if entry["vc"] is not None:
            name = "VC " + "/".join(v for v in (entry["cluster"], entry["vc"]) if v)
        else:
            parts = [f"{entry['gpu_class']} GPU" if entry["gpu_class"] else "", entry["status"] or ""]
            name = ", ".join(p for p in parts if p) or "all jobs"
        head: list[object] = [name, entry["measure"], entry["n"]]
        if entry["pooled_to"] is not None:
            whose = " ".join(entry["pooled_classes"]) if entry["pooled_to"] == "neighbours" else entry["pooled_to"]
            rows.append([*head, None, f"as {whose}", *[None] * 6])
            continue
        if entry["chosen"] is None:
            rows.append([*head, entry["right_censored"], entry["reason"], *[None] * 6])
            continue
        fit = next(f for f in entry["families"] if f["family"] == entry["chosen"])
        p = entry["bootstrap"]["p_ks"] if entry["bootstrap"] else None
        figures = [fit["aic"], fit["bic"], fit["ks"], fit["anderson_darling"], p]
        rows.append([*head, entry["right_censored"], entry["chosen"], entry["best_by"]["aic"], *figures])
    return headers, rows


def score_rows(model: WorkloadModel) -> list[dict[str, Any]]:
    """Return the scores as a short table: the held-out log, each generator and baseline, and blocks of the log.

    Values are medians over seeds. The table is empty if nothing was scored.
    """
    scores = model.document.get("scores") or {"reason": "not scored"}
    if scores["reason"] is not None:
        return []
    rows = {row["row"]: row for row in scores["rows"] if row["row"] in SCORED_FIGURES}

    def line(name: str, rank: float | None, values: dict[str, float | None]) -> dict[str, Any]:
        return {"workload": name, "mean_rank": rank, **{row: values.get(row) for row in SCORED_FIGURES}}

    found = [line("the log, held-out part", None, {name: row["held_out"] for name, row in rows.items()})]
    for total in scores["totals"]:
        own = {
            name: entry["value"]
            for name, row in rows.items()
            for entry in row["generators"]
            if entry["generator"] == total["generator"]
        }
        found.append(line(WORKLOADS[total["generator"]], total["mean_rank"], own))
    blocks = {name: row["log_blocks"]["value"] for name, row in rows.items() if row["log_blocks"] is not None}
    if blocks:
        found.append(line("the log, earlier blocks", None, blocks))
    return found


def score_words(model: WorkloadModel) -> str:
    """Return one sentence, without its full stop, on how the generators scored or why they were not scored."""
    scores = model.document.get("scores") or {"reason": "the model has an earlier version"}
    if scores["reason"] is not None:
        return f"generators were not scored: {scores['reason']}"
    learned, held = scores["learned"], scores["held_out"]
    best = scores["best"] if scores["best"] != "hybrid" else f"hybrid ({scores['hybrid']} of the log)"
    return (
        f"nearest to the log: {best}; fitted to {counted(learned['jobs'], 'jobs')} of"
        f" {counted(learned['days'], 'days')}, judged on {counted(held['jobs'], 'jobs')} of the"
        f" {counted(held['days'], 'days')} after them, {counted(scores['seeds'], 'draws')} each"
        + (f"; waits on {scores['machines']}" if scores["machines"] is not None else "")
    )
