"""Writes the report of a command: what was released and what is public, as one page of HTML."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import beam_dpcount as dp
from beam_dpcount.commands.figures import pictures
from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.addresses import name_of
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.page import content, counts, panels
from beam_dpcount.commands.page.markup import Html, el, joined

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

MOST_EMBEDDED = 1 << 20  # bytes of CSV in the page: browsers refuse much longer links


def write(task: Task, picture: pictures.Picture, warnings: Sequence[str]) -> None:
    """Writes --report.

    Args:
      task: a command whose output is written.
      picture: what it draws.
      warnings: on the budget and on rows without a release, as they are printed.

    Raises:
      InputError: the page cannot be written, or the output not be read back.
    """
    text = page(task, picture, warnings)
    with beside(task.options.report) as name:
        _save(name, text)


def _save(path: str, text: str) -> None:
    with open(path, "wb") as file:
        file.write(text.encode())


def page(task: Task, picture: pictures.Picture, warnings: Sequence[str]) -> str:
    """The page. It depends on options, public facts and the output alone."""
    style, script = (_asset(name) for name in ("style.css", "script.js"))
    # Nothing but this style and this script runs, and nothing is loaded: texts out of data cannot
    # add to the page, even where a mistake let them through as markup.
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"beam_dpcount {dp.__version__}"),
        el("title", picture.title),
        el("style", Html(style)),
    )
    body = el("body", *_body(task, picture, warnings), el("script", Html(script)))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _body(task: Task, picture: pictures.Picture, warnings: Sequence[str]) -> Iterator[Html]:
    written = task.written().replace(task.options.output, name_of(task.options.output))
    yield el(
        "header",
        el("h1", picture.title),
        el("p", f"{written[:1].upper()}{written[1:]}"),
        el("p", el("b", task.budget()), f" for {task.scope()}", class_="budget"),
        *(el("p", warning, class_="warning") for warning in warnings),
        *(el("p", finding) for finding in _findings(task, picture)),
    )
    if isinstance(picture, pictures.Running):
        shown, below = counts.section(picture)
    else:
        shown, below = panels.section(picture), Html()
    limits = [picture.covers, picture.remark, *picture.choice]
    yield el(
        "main",
        el("section", shown, *(el("p", text, class_="note") for text in limits if text), below),
        _section("The guarantee", _pairs(content.guarantee(task))),
        _section(
            "What is estimated", _pairs(content.estimated(task)), _list(content.counted(task))
        ),
        _section("Account", _pairs(content.account(task))),
        _section("Parameters", _pairs(content.parameters(task), "code")),
        _section("Data", *_data(task)),
    )
    yield el(
        "footer",
        el("p", "All that is on this page was released under the guarantee above, or is public."),
    )


def _findings(task: Task, picture: pictures.Picture) -> list[str]:
    """What the command found; the words that it lists are in the charts."""
    return [] if isinstance(picture, pictures.Ranked) and picture.keys else task.findings()


def _section(heading: str, *children: object) -> Html:
    return el("section", el("h2", heading), *children)


def _pairs(pairs: content.Pairs, kind: str | None = None) -> Html:
    made = (joined([el("dt", label), el("dd", text)]) for label, text in pairs)
    return el("dl", *made, class_=kind)


def _list(texts: Sequence[str]) -> Html:
    return el("ul", *(el("li", text) for text in texts))


def _data(task: Task) -> Iterator[Html]:
    name, names = name_of(task.options.output), ", ".join(n for n, _ in task.table().schema)
    text = _csv(task.output)
    if text is None:
        size = f"{MOST_EMBEDDED >> 20} MB"
        said = (
            f"All releases are in the file {name}: as CSV they are more than {size}, too much for "
        )
        yield el("p", f"{said}a page.")
    else:
        stem = name.rpartition(".")[0] or name
        link = "data:text/csv;charset=utf-8;base64," + base64.b64encode(text).decode()
        yield el("p", el("a", f"Download {stem}.csv", href=link, download=f"{stem}.csv"))
    if len(names) < 500:
        yield el(
            "p", f"Columns: {names}. Timestamps are microseconds since 1970, UTC.", class_="note"
        )


def _csv(output: tables.Output) -> bytes | None:
    """All releases, or None where they are too many."""
    text, size = io.StringIO(), 0
    names = [name for name, _ in output.table.schema]
    for row in (names, *output.records()):
        line = tables.csv_line(row)
        size += len(line.encode()) + 1
        if size > MOST_EMBEDDED:
            return None
        text.write(f"{line}\n")
    return text.getvalue().encode()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
