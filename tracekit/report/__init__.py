"""Reports: `data` builds the structure that is report.json, `page` draws the page from it, `write` writes all files."""
