"""A rehearsal's result where it was asked for: tables or JSON on stdout, a page in a file."""

import json
import sys

from tidegate.app.cli.rehearse_flags import Output
from tidegate.app.rehearse.document import Document
from tidegate.app.rehearse.document_schema import plain
from tidegate.app.rehearse.html import rehearsal_html
from tidegate.app.rehearse.table import tables
from tidegate.terms.errors import BadInputError


def deliver(document: Document, output: Output, *, title: str) -> None:
    """Write the page if one was asked for, then print the document, or its tables.

    Raises:
        BadInputError: The page cannot be written.
    """
    if output.html is not None:
        try:
            output.html.write_text(rehearsal_html(document, title=title), encoding="utf-8")
        except OSError as exc:
            msg = f"--html: {output.html}: cannot be written: {exc.strerror}"
            raise BadInputError(msg) from exc
    if output.json:
        json.dump(plain(document), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return
    parts = [title, *(t.text() for t in tables(document)), *(f"note: {n}" for n in document.notes)]
    sys.stdout.write("\n\n".join(parts[: len(parts) - len(document.notes)]) + "\n\n")
    sys.stdout.write("".join(f"{n}\n" for n in parts[len(parts) - len(document.notes) :]))
    if output.html is not None:
        sys.stdout.write(f"report: {output.html}\n")
