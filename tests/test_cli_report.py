"""--report, end to end: what is written, that it holds releases alone, and how a browser shows it."""

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

from beam_dpcount.commands import count, graph, histogram, sequences, ticks
from beam_dpcount.commands.page import write
from beam_dpcount.commands.task import Task
from tests import command_lines
from tests.command_lines import BUDGET, EXACT, fail

VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4
REPLAYED = (*BUDGET, "--secret-env", VARIABLE)
KEYS = ("ann", "bob", "</script><b>", "\u202eevil", "東京" * 30, "x" * 200)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MAIN = {
    "count": count.main,
    "ticks": ticks.main,
    "histogram": histogram.main,
    "sequences": sequences.main,
    "graph": graph.main,
    "cuts": graph.main,
    "select": ticks.main,
}
CLOCK = ("--timestamp", "time", "--tick", 10, "--start", 100, "--horizon", 6)
MORE: dict[str, tuple[object, ...]] = {
    "count": ("--key", "who", "--where", "letter=a", "--timestamp", "time", "--horizon", 60),
    "ticks": ("--key", "who", "--keys", *KEYS, *CLOCK),
    "histogram": ("--key", "who", "--item", "letter", "--domain", "a", "b", "--horizon", 60),
    "sequences": ("--letter", "letter", "--alphabet", "a", "b", "--max-length", 2, "--horizon", 60),
    "graph": ("--edge", "u", "v", "--vertices", 5, "--what", "edges", "--horizon", 60),
    "cuts": ("--edge", "u", "v", "--vertices", 5, "--what", "cuts", "--horizon", 60),
    "select": ("--key", "who", "--select-keys", *CLOCK),
}


def row(second: int, key: str, letter: str = "a") -> str:
    return f'{second},"{key}",{letter},{second % 5},{(second // 5 + 1) % 5}'


def rows() -> list[str]:
    return [row(100 + i, KEYS[i % len(KEYS)], "ab"[i % 2]) for i in range(58)]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return log(tmp_path / "events.csv", rows())


def log(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["time,who,letter,u,v", *lines, ""]), encoding="utf-8")
    return path


def reported(kind: str, events: Path, *more: object) -> tuple[str, str]:
    """The page, and what was printed."""
    out, page = events.parent / "out.csv", events.parent / "report.html"
    words = ("--input", events, *MORE[kind], "--output", out, "--report", page, *more)
    said = command_lines.succeed(*words, main=MAIN[kind])
    assert f"report: {page}" in said.splitlines()
    return page.read_text(encoding="utf-8"), said


@pytest.mark.parametrize("kind", MORE)
def test_each_command_has_a_report(kind: str, events: Path) -> None:
    """With the guarantee and the errors that are printed, and a browser's idea of a page."""
    page, said = reported(kind, events, *BUDGET)
    assert page.startswith("<!doctype html>\n<html lang=")
    (guarantee,) = (line for line in said.splitlines() if line.startswith("Guarantee: "))
    assert html.escape(guarantee) in page
    (errors,) = (line for line in said.splitlines() if line.startswith("Error to expect"))
    stated = errors.partition(" What is left out is not noise")[0].partition(" A key is shown")[0]
    assert html.escape(stated) in page
    assert (kind == "select") == ("no key was shown" in page.lower())
    assert (kind != "select") == ("<svg" in page)


# What is on the page


@pytest.mark.parametrize("kind", ["ticks", "count"])
def test_the_page_is_a_function_of_what_was_written(
    kind: str, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours have the same page but for releases: with the other's output it is the other's."""
    monkeypatch.setenv(VARIABLE, SECRET)
    first, _ = reported(kind, events, *REPLAYED)
    kept = shutil.copy(events.parent / "out.csv", events.parent / "kept.csv")
    other = rows()
    other[3] = row(103, KEYS[3], "a")  # counted otherwise
    if kind == "ticks":
        other[3:4] = []  # or not there at all
    log(events, other)
    second, _ = reported(kind, events, *REPLAYED)
    assert second != first
    draw = Task.draw

    def of_the_other(task: Task, warnings: Any) -> list[str]:
        shutil.copy(kept, task.options.output)
        return draw(task, warnings)

    monkeypatch.setattr(Task, "draw", of_the_other)
    assert reported(kind, events, *REPLAYED)[0] == first


def test_what_leaves_no_trace_in_the_output_leaves_none_in_the_page(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    first, _ = reported("ticks", events, *REPLAYED)
    log(events, [*rows(), row(5, "ann"), row(999, "bob"), row(101, "s3cr3t")])
    assert reported("ticks", events, *REPLAYED)[0] == first


@pytest.mark.exhaustive
def test_exact_counts_are_not_in_the_page(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--show-truth is for the picture alone."""
    monkeypatch.setenv(VARIABLE, SECRET)
    page, _ = reported("count", events, *REPLAYED)
    picture = ("--plot", events.parent / "p.png")
    assert reported("count", events, *REPLAYED, *picture, "--show-truth")[0] == page
    assert "exact counts" not in page
    assert "show-truth" not in page


def test_warnings_are_on_the_page(events: Path) -> None:
    page, said = reported("count", events, *EXACT, "--horizon", 3)
    warnings = [line for line in said.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2  # the budget, and rows past the horizon
    assert all(html.escape(line) in page for line in warnings)


def test_parquet_has_the_same_page(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    page, _ = reported("graph", events, *REPLAYED)
    other = reported("graph", events, *REPLAYED, "--output", events.parent / "out.parquet")[0]
    assert other == page.replace("statistics (edges): out.csv", "statistics (edges): out.parquet")


# Mistakes


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--report", "out.csv"), "--report must end in .html, got 'out.csv'"),
        (("--report", "absent/r.html"), "there is no directory 'absent'"),
        (("--report", "r.html", "--output", "gs://x/o.csv"), "--report reads the output back"),
        (("--report", "r.html", "--plot", "r.html"), "must be different files"),
        (("--report", "r.html", "--show-truth"), "--show-truth needs --plot"),
        (("--plot-keys", "ann"), "--plot-keys needs --plot PNG or --report HTML"),
    ],
)
def test_bad_arguments(
    words: tuple[str, ...], part: str, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(events.parent)
    given = ("--input", events, *MORE["count"], *BUDGET, "--output", "o.csv", *words)
    assert part in fail(*given, started=False)
    assert [path.name for path in events.parent.iterdir()] == ["events.csv"]


def test_a_page_that_cannot_be_written(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "page", full)
    place = events.parent / "r.html"
    given = ("--input", events, *MORE["count"], *BUDGET, "--output", events.parent / "o.csv")
    monkeypatch.setattr(write, "_bytes", full)
    said = fail(*given, "--report", place)
    assert f"error: '{place}' cannot be written: No space left on device" in said
    assert f"the counts are complete: {events.parent / 'o.csv'}" in said
    assert not place.exists()


# In a browser

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
  const text = [...document.querySelectorAll("svg.chart text")].find((t) => t.getClientRects().length);
  told.letters = text ? text.getBoundingClientRect().height : null;
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


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser to open the report: none of {', '.join(BROWSERS)} is here")


def opened(browser: str, page: Path, width: int) -> str:
    """The page as a browser has it once it is loaded."""
    with tempfile.TemporaryDirectory() as profile:
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--user-data-dir={profile}", f"--window-size={width},2000", "--dump-dom"]
        ended = subprocess.run(
            [browser, *words, page.resolve().as_uri()], capture_output=True, text=True, timeout=120
        )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def measured(browser: str, page: Path, width: int) -> dict[str, Any]:
    """What a script finds that is put into a copy of the page, whose policy would not let it run."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"script-src (&#x27;|')sha256-[^']*?\1", "script-src 'unsafe-inline'", text)
    assert "script-src 'unsafe-inline'" in text
    copy = page.with_name("measured.html")
    copy.write_text(text.replace("<body>", f"<body><script>{MEASURE}</script>"), encoding="utf-8")
    dom = opened(browser, copy, width)
    found = re.search(r"<title>(.*?)</title>", dom, re.S)
    assert found
    told: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert told["inner"] == width
    return told


@pytest.mark.exhaustive("width")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", [kind for kind in MORE if kind != "select"])
def test_a_browser_shows_it(kind: str, width: int, events: Path, browser: str) -> None:
    """At both widths nothing is beyond the edge, charts are there, and letters are not scaled."""
    reported(kind, events, *BUDGET)
    told = measured(browser, events.parent / "report.html", width)
    assert told["errors"] == []
    assert (told["scroll"], told["beyond"]) == (width, [])
    assert told["charts"] >= 1
    assert told["letters"] > 9
    if kind in ("count", "ticks"):
        assert told["figures"] == len(KEYS)
        assert told["chosen"] == [1]
    if kind in ("count", "ticks", "graph"):
        points = told["points"]
        assert told["ends"] == [points[0], points[-1]]
        assert told["before"] == points[-2]


@pytest.mark.exhaustive
def test_its_own_policy_lets_its_script_run_and_no_other(events: Path, browser: str) -> None:
    reported("ticks", events, *BUDGET)
    page = events.parent / "report.html"
    told = opened(browser, page, 390)
    assert re.search(r'<p class="script"><label>Show', told)  # no longer hidden
    text = page.read_text(encoding="utf-8")
    other = "<script>document.title = 'ran'</script><style>h1 {display: none}</style>"
    page.write_text(text.replace("<body>", f"<body>{other}"), encoding="utf-8")
    assert "<title>ran</title>" not in opened(browser, page, 390)


def test_the_measure_sees_what_is_too_wide(tmp_path: Path, browser: str) -> None:
    page = tmp_path / "wide.html"
    policy = "<meta http-equiv=Content-Security-Policy content=\"script-src 'sha256-x'\">"
    body = "<body><p style='width: 600px'>x</p></body>"
    page.write_text(f"<!doctype html>{policy}<title>t</title>{body}")
    told = measured(browser, page, 390)
    assert told["scroll"] > 390
    assert told["beyond"] == ["P.null"]
