"""The documentation as a site: make docs. Warnings are errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

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


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
