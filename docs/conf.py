"""The documentation as a site: make docs. Warnings are errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import beam_dpcount

project = "beam_dpcount"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "beam_dpcount"
html_show_copyright = html_show_sphinx = html_copy_source = False
default_role = "code"  # `name` in docstrings

myst_heading_anchors = 4  # as GitHub makes them
napoleon_numpy_docstring = False
_SECTIONS = "params_style"
napoleon_custom_sections = ["Guarantee", "Source", ("Fields", _SECTIONS), ("Attributes", _SECTIONS)]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}


def plain(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text, with sections that begin on their title's line."""
    text, many = "\n".join(lines), 1
    while many:  # several arguments with one text, over two lines and more
        text, many = re.subn(r"^( +(?:\w+, )+\w+,)\n +", r"\1 ", text, flags=re.MULTILINE)
    made: list[str] = []
    for line in text.splitlines():
        line = re.sub(r"(?<!`)\|(?!`)", r"\\|", line)  # |x| is a norm, and no substitution
        line = re.sub(r"\bdocs/([\w/]+)\.md", r":doc:`docs/\1.md </\1>`", line)
        section = re.match(r"(Guarantee|Source): (.*)", line)
        made += [f"{section[1]}:", f"  {section[2]}"] if section else [line]
    lines[:] = made


def every_metric(_app: Any, _page: str, text: list[str]) -> None:
    """In place of this comment a page has all metrics, under the name that programs know best."""
    from beam_dpcount.statistics import metrics

    homes = ((k, "" if k.__name__ in beam_dpcount.__all__ else ".metrics") for k in metrics.ALL)
    said = (f".. autoclass:: beam_dpcount{home}.{k.__name__}\n   :members:\n" for k, home in homes)
    block = "```{eval-rst}\n" + "\n".join(said) + "```"
    text[0] = text[0].replace("<!-- every metric -->", block)


def setup(app: Any) -> None:
    app.connect("source-read", every_metric)
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
