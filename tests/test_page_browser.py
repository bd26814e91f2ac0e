"""The report as a browser shows it; skipped where there is none."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.pages import EVIL, samples

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (390, 1280)
KINDS = ("keys", "key", "items", "words", "degrees", "cuts")
WIDE = "<!doctype html><title>t</title><body><p style='width: 600px'>x</p></body>"

MEASURE = """
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("load", () => {
  const told = {};
  const page = document.documentElement;
  told.inner = innerWidth;
  told.scroll = page.scrollWidth;
  const wide = [...document.querySelectorAll("body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width && box.right > innerWidth + 1 && !element.closest(".wide");
  });
  told.beyond = wide.map((element) => element.tagName + "." + element.getAttribute("class"));
  told.charts = [...document.querySelectorAll("svg.chart")].filter((c) => c.clientWidth).length;
  const texts = [...document.querySelectorAll("svg.chart text")];
  const letters = texts.map((t) => [t, t.getBoundingClientRect()]);
  told.letters = Math.min(...letters.filter(([t, b]) => b.height).map(([t, b]) => {
    return t.hasAttribute("transform") ? b.width : b.height;
  }));
  const figures = [...document.querySelectorAll("#keys > figure")];
  told.figures = figures.length;
  const choice = document.getElementById("key");
  if (choice) {
    choice.value = "1";
    choice.dispatchEvent(new Event("change"));
    told.chosen = figures.map((f, i) => [f, i]).filter(([f]) => f.offsetHeight).map(([f, i]) => i);
    choice.value = "";
    choice.dispatchEvent(new Event("change"));
  }
  const chart = [...document.querySelectorAll("svg.points")].find((c) => c.clientWidth);
  if (chart) {
    const box = chart.getBoundingClientRect();
    const at = (x) => new PointerEvent("pointermove", { clientX: x, clientY: box.top + 50 });
    const output = chart.closest("figure").querySelector("output");
    told.ends = [box.left, box.right].map((x) => {
      chart.dispatchEvent(at(x));
      return output.textContent;
    });
    chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    told.before = output.textContent;
    told.points = JSON.parse(chart.dataset.points).t;
  }
  told.errors = errors;
  document.title = JSON.stringify(told);
});
"""


# A page in it is a document of its own, with a width of its own; its title is what it measures.
HARNESS = """<!doctype html><title>none</title>
<body>{frames}<script>
addEventListener("load", () => {{
  const all = [...document.querySelectorAll("iframe")];
  const told = Object.fromEntries(all.map((f) => [f.id, f.contentDocument.title]));
  document.body.textContent = "";
  document.title = JSON.stringify(told);
}});
</script></body>"""


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser to open the report: none of {', '.join(BROWSERS)} is here")


def opened(browser: str, page: Path) -> str:
    """The page as a browser has it once it is loaded."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--user-data-dir={profile}", "--window-size=1400,2000", "--dump-dom"]
        ended = subprocess.run(
            [browser, *words, page.resolve().as_uri()], capture_output=True, text=True, timeout=240
        )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def with_measure(page: str) -> str:
    """A copy with a script, whose policy lets it run."""
    page = re.sub(r"script-src (&#x27;|')sha256-.*?\1", "script-src 'unsafe-inline'", page)
    return page.replace("<body>", f"<body><script>{MEASURE}</script>")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return samples(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def measured(
    pages: dict[str, str], browser: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What is measured of each page and of one that is too wide, in each width."""
    frames = "".join(
        f'<iframe id="{kind} {width}" width="{width}" height="2000" frameborder="0" '
        f'srcdoc="{html.escape(with_measure(page))}"></iframe>'
        for kind, page in {**pages, "wide": WIDE}.items()
        for width in WIDTHS
    )
    path = tmp_path_factory.mktemp("harness") / "harness.html"
    path.write_text(HARNESS.format(frames=frames), encoding="utf-8")
    found = re.search(r"<title>(.*?)</title>", opened(browser, path), re.S)
    assert found
    return {name: json.loads(told) for name, told in json.loads(html.unescape(found[1])).items()}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_fits(kind: str, width: int, measured: dict[str, Any]) -> None:
    """Nothing is beyond the edge, charts are there, and letters are not scaled down."""
    told = measured[f"{kind} {width}"]
    assert told["errors"] == []
    assert (told["inner"], told["scroll"], told["beyond"]) == (width, width, [])
    assert told["charts"] >= 1
    assert told["letters"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_pointed_at_is_said(width: int, measured: dict[str, Any]) -> None:
    for kind in ("keys", "key"):
        told = measured[f"{kind} {width}"]
        points = told["points"]
        assert len(points) > 5
        assert told["ends"] == [points[0], points[-1]]
        assert told["before"] == points[-2]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_one_key_can_be_chosen(width: int, measured: dict[str, Any]) -> None:
    told = measured[f"keys {width}"]
    assert told["figures"] == len(EVIL) + 1
    assert told["chosen"] == [1]


@pytest.mark.slow
def test_the_measure_sees_what_is_too_wide(measured: dict[str, Any]) -> None:
    told = measured["wide 390"]
    assert told["scroll"] > 390
    assert told["beyond"] == ["P.null"]
    assert (measured["wide 1280"]["scroll"], measured["wide 1280"]["beyond"]) == (1280, [])


@pytest.mark.slow
def test_its_own_policy_lets_its_script_run_and_no_other(
    pages: dict[str, str], browser: str, tmp_path: Path
) -> None:
    page, other = tmp_path / "page.html", "<script>document.title = 'ran'</script>"
    page.write_text(pages["keys"].replace("<body>", f"<body>{other}"), encoding="utf-8")
    told = opened(browser, page)
    assert '<p class="script"><label>Show' in told  # no longer hidden
    assert '<p class="script" hidden="hidden"><label>Show' in pages["keys"]
    assert "<title>ran</title>" not in told
