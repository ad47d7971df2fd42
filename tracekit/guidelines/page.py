"""The guidelines as one HTML page in which all text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tracekit.faults import Fault, Faults
from tracekit.guidelines.markdown import HEADS, effect_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "th,td{border:1px solid;padding:.2rem .5rem;text-align:left}"
)


def page(document: Mapping[str, Any], faults: Faults | None = None) -> str:
    """Return the document of `document_of` as an HTML page that needs no network access and runs no scripts.

    If a guideline cannot be rendered, the page says so and `faults` records it.
    """
    faults = Faults() if faults is None else faults
    title = f"Guidelines for {escape(document['trace'])}"
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>",
        f"<p>{document['holds']} of {len(document['guidelines'])} guidelines hold. ",
        "A guideline gives advice only if its finding crossed the threshold.</p>",
    ]
    for verdict, head in HEADS:
        entries = [e for e in document["guidelines"] if e["verdict"] == verdict]
        if not entries:
            continue
        parts.append(f"<h2>{head}</h2>")
        if verdict == "holds":
            parts += [_advice_or_fault(entry, faults) for entry in entries]
        else:
            items = "".join(
                f"<li><strong>{escape(e['title'])}</strong>: {escape(' '.join(e['why']))}</li>" for e in entries
            )
            parts.append(f"<ul>{items}</ul>")
    parts.append(f"</main><footer><p>tracekit {escape(document['tracekit_version'])}</p></footer></body></html>\n")
    return "\n".join(parts)


def _advice_or_fault(entry: Mapping[str, Any], faults: Faults) -> str:
    made = faults.run(f"the text of the guideline {entry['id']}", _advice, entry)
    if not isinstance(made, Fault):
        return made
    head = f'<section id="{escape(entry["id"])}"><h3>{escape(entry["title"])}</h3>'
    return f"{head}<p>{escape(made.remark)}</p></section>"


def _advice(entry: Mapping[str, Any]) -> str:
    finding = entry["finding"]
    heads = ("what", "measured (95 % interval)", "n")
    rows = [(m["what"], m["text"], f"{m['n']:,} {m['n_of']}") for m in finding["numbers"]]
    parts = [
        f'<section id="{escape(entry["id"])}"><h3>{escape(entry["title"])}</h3>',
        f"<p><em>{escape(entry['question'])}</em></p><p>{escape(finding['text'])}</p>{_table(heads, rows)}",
    ]
    if finding["rows"]:
        details = _table(finding["rows"][0], (row.values() for row in finding["rows"]))
        parts.append(f"<details><summary>{escape(finding['rows_title'])}</summary>{details}</details>")
    terms = [
        ("Advice", entry["advice"]),
        ("Does it help?", effect_text(entry)),
        ("Cost", entry["cost"]),
        ("Risk", entry["risk"]),
    ]
    names = (("Slurm", "slurm"), ("Kubernetes", "kubernetes"), ("YARN", "yarn"))
    terms += [(title, entry["practice"][key]) for title, key in names]
    terms.append(("Thresholds", "; ".join(f"{t['what']} {t['limit']} ({t['source']})" for t in entry["thresholds"])))
    terms += [("Note", note) for note in finding["notes"]]
    terms.append(("Sources", "; ".join(entry["sources"])))
    listed = "".join(f"<dt>{term}</dt><dd>{escape(text or '')}</dd>" for term, text in terms)
    return "".join([*parts, f"<dl>{listed}</dl></section>"])


def _table(heads: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    top = "".join(f'<th scope="col">{escape(str(h))}</th>' for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{_cell(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    return escape(f"{value:,.4g}" if isinstance(value, float) else str(value))
