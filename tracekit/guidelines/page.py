"""The guidelines as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import resources
from tracekit.faults import Fault, Faults
from tracekit.guidelines.markdown import HEADS, cell_text, effect_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def page(document: Mapping[str, Any], faults: Faults | None = None) -> str:
    """Render the document from `document_of` as an HTML page that needs no network access and runs no scripts.

    If a guideline cannot be rendered, the page says so, and `faults` records it.
    """
    import jinja2

    faults = Faults() if faults is None else faults
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.folder("reports")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["cell"] = cell_text
    views = [(entry["verdict"], _view(entry, faults)) for entry in document["guidelines"]]
    groups = [(heading, [view for found, view in views if found == verdict]) for verdict, heading in HEADS]
    return env.get_template("guidelines.html.j2").render(document=document, groups=groups)


def _view(entry: Mapping[str, Any], faults: Faults) -> Mapping[str, Any]:
    if entry["verdict"] != "holds":
        return entry
    made = faults.run(f"the text of the guideline {entry['id']}", _advice, entry)
    return {**entry, "unmade": made} if isinstance(made, Fault) else {**entry, **made, "unmade": None}


def _advice(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables and terms of a guideline that holds."""
    finding, practice = entry["finding"], entry["practice"]
    return {
        "numbers": [(m["what"], m["text"], f"{m['n']:,} {m['n_of']}") for m in finding["numbers"]],
        "details": [list(row.values()) for row in finding["rows"]],
        "terms": [
            ("Advice", entry["advice"]),
            ("Does it help?", effect_text(entry)),
            ("Cost", entry["cost"]),
            ("Risk", entry["risk"]),
            ("Slurm", practice["slurm"]),
            ("Kubernetes", practice["kubernetes"]),
            ("YARN", practice["yarn"]),
            ("Thresholds", "; ".join(f"{t['what']} {t['limit']} ({t['source']})" for t in entry["thresholds"])),
            *(("Note", note) for note in finding["notes"]),
            ("Sources", "; ".join(entry["sources"])),
        ],
    }
