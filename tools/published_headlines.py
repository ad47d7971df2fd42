"""Write docs/headlines.md, which compares what each system's paper promises with what its policy achieves here.

python tools/published_headlines.py              # replay all scenarios and write the page
python tools/published_headlines.py --only Muri  # replay one system and print its rows

A file in tools/headlines defines each scenario by a sample trace, the factors for its arrival rate and number of nodes,
assumptions, the paper's baselines that exist here, and the measure. There are no other choices.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tracekit import ingest_logs  # noqa: E402 -- found through the line above
from tracekit.errors import UsageError  # noqa: E402 -- found through the path set above
from tracekit.replay.api import scenario_of  # noqa: E402 -- found through the path set above
from tracekit.text import signed_percent  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.replay.scenario import Scenario
    from tracekit.trace import Trace

__all__ = ["Headline", "Seen", "headlines", "page", "verdict"]

FOLDER = ROOT / "tools" / "headlines"
PAGE = ROOT / "docs" / "headlines.md"

_HEAD = """# What the papers promise, and what happens here

This page compares each system's published headline with its policy in the closest scenario here. The scenario is a
sample trace that ships with the repository, under the listed assumptions. The samples are small, and the clusters
differ from those of the papers, so **compare the direction, not the figure**. If a direction is reversed here, we
explain it and leave it as it is. `python tools/published_headlines.py` writes this page again.

For each baseline the table shows by how much the policy's figure differs from the baseline's.
"""


@dataclass(frozen=True)
class Headline:
    """A paper's headline result for a system, and the closest scenario here."""

    system: str
    policy: str
    """The policy as written on the command line."""
    published: str
    """The headline in our own words."""
    source: str
    against: tuple[str, ...]
    """The paper's baselines that exist here, as written on the command line."""
    trace: str
    """A folder of sample_traces."""
    measure: str
    """A key of a replay's summary."""
    better: str
    """'lower' or 'higher'."""
    why: str
    """Why this scenario was chosen, and why a direction is reversed."""
    group: str = ""
    """The file that defines the headline."""
    load: float = 1.0
    gpus: float | None = None
    cluster: str | None = None
    """The cluster as `tracekit replay --cluster` accepts it, or the content of such a file."""
    assume: str = ""
    """Content of an assumptions file."""

    def __post_init__(self) -> None:
        if self.better not in {"lower", "higher"}:
            raise ValueError(f"{self.system}: better={self.better} is neither lower nor higher")
        if not self.against:
            raise ValueError(f"{self.system}: no baseline")

    @property
    def scenario(self) -> tuple[Any, ...]:
        """The settings that replays of the same scenario share."""
        return self.trace, self.load, self.gpus, self.cluster, self.assume


@dataclass(frozen=True)
class Seen:
    """Results of the replays, with None if a policy cannot run or has no figure."""

    headline: Headline
    figure: float | None
    baselines: dict[str, float | None]
    lacking: str = ""
    """Why the policy cannot run."""


def headlines(folder: Path = FOLDER) -> list[Headline]:
    """Return the headlines from all files, in the order of files and entries.

    Raises
    ------
    ValueError
        An entry has a missing or unknown field, or an invalid value.
    """
    found = []
    for file in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["headline"]:
            try:
                found.append(Headline(**(entry | {"against": tuple(entry["against"])}), group=file.stem))
            except (TypeError, KeyError) as error:
                raise ValueError(f"{file.name}: {entry.get('system')}: {error}") from error
    return found


def replayed(wanted: Sequence[Headline], traces: Path) -> Iterator[Seen]:
    """Replay the scenario of each headline. Headlines with the same scenario share its replays."""
    ingested: dict[str, Trace] = {}
    scenarios: dict[tuple[Any, ...], Scenario] = {}
    for one in wanted:
        if one.trace not in ingested:
            ingested[one.trace] = ingest_logs(ROOT / "sample_traces" / one.trace, traces / one.trace.replace("/", "-"))
        if one.scenario not in scenarios:
            scenarios[one.scenario] = _scenario(one, ingested[one.trace], traces)
        scenario = scenarios[one.scenario]
        figure, lacking = _figure(scenario, one.policy, one.measure)
        yield Seen(one, figure, {text: _figure(scenario, text, one.measure)[0] for text in one.against}, lacking)


def _scenario(one: Headline, trace: Trace, folder: Path) -> Scenario:
    models = cluster = None
    if one.assume:
        models = folder / "assume.toml"
        models.write_text(one.assume, encoding="utf-8")
    if one.cluster is not None:
        cluster = one.cluster
        if "\n" in one.cluster:
            cluster = str(folder / "cluster.toml")
            Path(cluster).write_text(one.cluster, encoding="utf-8")
    return scenario_of(trace, load=one.load, gpus=one.gpus, cluster=cluster, models=models, force=True)


def _figure(scenario: Scenario, policy: str, measure: str) -> tuple[float | None, str]:
    try:
        summary = scenario.run(policy).summary
    except UsageError as error:
        return None, str(error)
    if measure not in summary:
        raise ValueError(f"a replay's summary has no '{measure}'")
    return summary[measure], ""


def verdict(seen: Seen) -> str:
    """Return 'holds', 'reversed', 'equal' or 'holds against ...', based on the figures alone."""
    if seen.figure is None:
        return "cannot run"
    worse, equal, than = [], [], []
    for name, figure in seen.baselines.items():
        if figure is None:
            continue
        if abs(seen.figure - figure) <= 1e-9 * max(abs(figure), 1e-9):
            equal.append(name)
        elif (seen.figure < figure) == (seen.headline.better == "lower"):
            than.append(name)
        else:
            worse.append(name)
    if not worse and not equal:
        return "holds" if than else "no baseline runs"
    if not than:
        return "reversed" if worse else "equal"
    return "holds against " + ", ".join(f"`{name}`" for name in than)


def page(found: Sequence[Seen]) -> str:
    """Return the page."""
    groups: dict[str, list[Seen]] = {}
    for one in found:
        groups.setdefault(one.headline.group, []).append(one)
    parts = [_HEAD]
    for group, members in groups.items():
        parts += [f"\n## {group.capitalize()}\n"]
        parts += ["| system | published | here | direction |", "|---|---|---|---|"]
        parts += [_row(one) for one in members]
        parts += ["\nWhy these scenarios:\n"]
        parts += [f"- **{one.headline.system}** (`{one.headline.policy}`): {one.headline.why}" for one in members]
    return "\n".join(parts) + "\n"


def _row(seen: Seen) -> str:
    one = seen.headline
    scenario = f"{one.trace}, load {one.load:g}" + ("" if one.gpus is None else f", {one.gpus:g} times the nodes")
    if seen.figure is None:
        here = f"{scenario}: {seen.lacking or 'no figure'}"
    else:
        beside = "; ".join(f"`{name}` {_change(seen.figure, value)}" for name, value in seen.baselines.items())
        here = f"{scenario}: `{one.measure}` {seen.figure:,.4g}, against {beside}"
    cells = (f"{one.system}: `{one.policy}`", f"{one.published} ({one.source})", here, verdict(seen))
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _change(figure: float, baseline: float | None) -> str:
    if baseline is None:
        return "cannot run"
    return f"{baseline:,.4g}" if baseline == 0 else signed_percent(figure / baseline - 1)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="SYSTEM", help="print the rows of one system and write nothing")
    chosen = parser.parse_args()
    wanted = [one for one in headlines() if chosen.only in (None, one.system)]
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for seen in replayed(wanted, Path(folder)):
            print(_row(seen), flush=True)
            found.append(seen)
    if chosen.only is None:
        PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
