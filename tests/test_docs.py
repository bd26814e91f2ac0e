"""The documentation says what is so: its code runs, its commands run, its tests exist."""

import csv
import doctest
import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from beam_dpcount.commands import bounds, choose, count, graph, histogram, sequences, ticks
from beam_dpcount.commands.files.formats import Places
from benchmarks.papers import __main__ as papers
from tests.public import HOMES, MODULES
from tests.runners import run

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TASKS = (count.Count, ticks.Ticks, histogram.Histogram, sequences.Sequences, graph.Graph)
PARSERS = [
    choose.arguments(),
    bounds.arguments(),
    papers.arguments(),
    *(task.parser() for task in TASKS),
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
POINTER = re.compile(r"""\bdocs/([\w./-]+\.md)(?:, (?:"([^"]+)"|([A-Z]\w+)))?""")


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def broken_links(text: str, page: Path) -> list[str]:
    """Links of a page to files or headings that do not exist; the web is not asked."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        if ":" not in path and not (
            file.exists() and (not heading or heading in map(anchor, headings(file)))
        ):
            broken.append(target)
    return broken


def broken_pointers(text: str) -> list[str]:
    """Words like docs/engines.md, "Load" that name no file or heading; headings need quotes."""
    broken = []
    for match in POINTER.finditer(re.sub(r"\s*\n[\s#]*", " ", text)):
        page, heading, unquoted = match.groups()
        file = ROOT / "docs" / page
        if unquoted or not file.exists() or (heading and heading not in headings(file)):
            broken.append(match.group())
    return broken


# Each Python block, with the text block right below it, if any: what it prints.
EXAMPLES = [
    pytest.param(page.name, code, expected, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.name != "CONTRIBUTING.md"  # parts of files, not whole programs
    for number, (code, expected) in enumerate(
        re.findall(
            r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    )
]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def agrees(expected: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, printed, flags)


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.filterwarnings("error::beam_dpcount.errors.WeakBudgetWarning")
@pytest.mark.parametrize(("name", "code", "expected"), EXAMPLES)
def test_python_examples_print_what_they_claim(name, code, expected, capfd):
    """What a text block below an example claims, "..." for noise; or else anything at all."""
    exec(compile(code, f"example of {name}", "exec"), {"__name__": "example"})
    out = capfd.readouterr().out
    assert agrees(expected, out) if expected else ("print" not in code) or out.strip()


CLUSTERS = {"flink.md", "dataflow.md"}  # what their commands need is elsewhere
CONSOLE = [
    page
    for page in PAGES
    if page.parent.name == "guide" or page.name in ("README.md", "tutorial.md", "choosing.md")
    if page.name not in CLUSTERS and "```console" in page.read_text(encoding="utf-8")
]
MESSAGES = ROOT.parent / "shared" / "data" / "collegemsg.txt"


def run_words(words: list[str], place: Path) -> str | None:
    """What a command of a page prints; None for one that sets up what a test has already."""
    if words[0] == "make":
        made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in made
        return None
    if words[:2] == ["pip", "install"]:
        extras = re.findall(r"[\w-]+", words[2].partition("[")[2])
        known = (ROOT / "pyproject.toml").read_text()
        assert all(re.search(rf"^{extra} = \[", known, re.MULTILINE) for extra in extras)
        return None
    if words[0] == "curl":
        if not MESSAGES.exists():
            pytest.skip("the tutorial's log is not here, and tests load nothing")
        lines = MESSAGES.read_bytes().split(b"\n", 1)[1]
        (place / words[2].rpartition("/")[2]).write_bytes(gzip.compress(lines))
        return None
    if words[0] == "beam-dpcount":
        words = [sys.executable, "-m", "beam_dpcount", *words[1:]]
    elif words[0] == "python":
        words = [sys.executable, *(str(ROOT / w) if (ROOT / w).is_file() else w for w in words[1:])]
    done = subprocess.run(
        words,
        cwd=place,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stderr)
    assert "weak budget" not in done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after `beam-dpcount demo`."""
    place = tmp_path_factory.mktemp("demo")
    run_words(["beam-dpcount", "demo"], place)
    guarantee, *_ = blocks((ROOT / "docs" / "privacy.md").read_text(encoding="utf-8"), "text")
    about = (place / "out" / "demo" / "ticks.csv.manifest.json").read_text(encoding="utf-8")
    assert agrees(guarantee, json.loads(about)["guarantee"])
    return place


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", CONSOLE, ids=lambda page: page.stem)
def test_console_examples_run(page: Path, demo: Path, tmp_path: Path) -> None:
    """Every command of a page, after the demo; a text block below is what the last one prints."""
    shutil.copytree(demo, tmp_path / "page")
    found = re.findall(
        r"^```console\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert found
    for block, expected in found:
        printed = None
        for command in block.replace("\\\n", " ").split("$ ")[1:]:
            words = shlex.split(command.split("\n")[0])
            if words[-1] == "demo":  # what the directory has already
                shutil.rmtree(tmp_path / "page" / "out")
            printed = run_words(words, tmp_path / "page")
        if expected and printed is not None:
            assert agrees(expected, printed), printed


@pytest.mark.long
@pytest.mark.pipeline
def test_the_steps_of_yaml_beside_questions_run(demo: Path) -> None:
    """Each is one TickCount of the demo's log, and has the columns of the command above it."""
    pytest.importorskip("docstring_parser")  # of the extra yaml
    import yaml  # type: ignore[import-untyped]
    from apache_beam.yaml.yaml_provider import parse_providers
    from apache_beam.yaml.yaml_transform import YamlTransform

    text = (ROOT / "docs" / "guide" / "questions.md").read_text(encoding="utf-8")
    provider = ROOT / "beam_dpcount" / "rows" / "provider.yaml"
    providers = parse_providers("", yaml.safe_load(provider.read_text()))
    with open(demo / "out" / "demo" / "events.csv", newline="") as file:
        some = [row | {"ms": int(row["ms"])} for row in csv.DictReader(file)][::40]
    pairs = re.findall(
        r"```console\n([^`]*)```\n(?:\n```text\n[^`]*```\n)?\n```yaml\n([^`]*)```", text
    )
    assert len(pairs) == text.count("```yaml") == 5
    for command, step in pairs:
        steps = [{"type": "Create", "config": {"elements": some}}, yaml.safe_load(step)]
        chain = json.dumps({"type": "chain", "transforms": steps})
        built: list[Any] = run(lambda p, chain=chain: p | YamlTransform(chain, providers)).outputs
        words = shlex.split(command.replace("\\\n", " ").removeprefix("$ beam-dpcount ticks"))
        task = ticks.Ticks.of(ticks.Ticks.parser().parse_known_args(words)[0])
        task.check()
        task.transform(Places([]))
        names = [name for name, _ in task.table().schema]
        assert {tuple(seen.value._asdict()) for seen in built[0]} <= {tuple(names)}
        assert built[0] or "select_keys" in step


@pytest.mark.exhaustive
def test_the_site_builds_without_a_warning(tmp_path):
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*words, "-d", tmp_path / "trees", "docs", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "reference").glob("*.html")
    text = "".join(page.read_text(encoding="utf-8") for page in reference)
    for home in HOMES.values():
        for name in set(home.__all__) - MODULES:
            assert f'id="{home.__name__}.{name}"' in text, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\b((?:engines/)?test_\w+\.py)", text):
        assert (ROOT / "tests" / name).exists(), name
    assert not broken_links(text, page)
    assert not broken_pointers(text)


def test_broken_links_and_pointers_are_found():
    page = ROOT / "docs" / "privacy.md"
    assert not broken_links("[a](engines.md#load) [b](https://example.org/c#d) [e](#proofs)", page)
    bad = ["nowhere.md", "engines.md#lode", "#nothing"]
    assert broken_links(" ".join(f"[a]({target})" for target in bad), page) == bad
    good = 'see docs/engines.md,\n# "Load", and (docs/proofs/trees.md); docs/engines.md, and more'
    assert not broken_pointers(good)
    bad = ["docs/nowhere.md", 'docs/engines.md, "Lode"', "docs/engines.md, Load"]
    assert broken_pointers("; ".join(bad)) == bad


def test_citations_have_a_source():
    sources = (ROOT / "docs" / "proofs" / "sources.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^- \[(\w+)\]", sources, re.MULTILINE))
    cited = {
        name
        for path in (*PAGES, *(ROOT / "beam_dpcount").rglob("*.py"))
        for name in re.findall(r"\[([A-Z]{2,6}\d{2})\b", path.read_text(encoding="utf-8"))
    }
    assert "FHU22" in cited <= known


def test_the_map_names_every_file_in_its_room():
    """And nothing else: docs/architecture.md, "Files"."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "beam_dpcount"
    rows = re.findall(r"^\| `([a-z/]+)/` \| (.*) \|$", text, re.MULTILINE)
    named = {room: sorted(re.findall(r"`(\w+\.py)`", files)) for room, files in rows}
    there = {
        str(room.relative_to(package)): sorted(
            path.name for path in room.glob("*.py") if path.name != "__init__.py"
        )
        for room in package.rglob("*")
        if room.is_dir() and room.name != "__pycache__"
    }
    assert named == there


def test_the_glossary_is_short():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    glossary = text.split("| word | meaning |\n|---|---|\n")[1].splitlines()
    words = [line.split("|")[1].strip() for line in glossary if line]
    assert len(set(words)) == len(words) <= 20


def test_the_table_of_choices_is_what_choose_finds():
    """To renew it: beam-dpcount choose --markdown."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    assert page.split("<!-- table -->\n")[1].split("\n<!-- /table -->")[0] == choose.table()


@pytest.mark.parametrize("page", ["README.md", "docs/privacy.md", "docs/choosing.md"])
def test_flags_in_pages_exist(page):
    actions = [action for parser in PARSERS for action in parser._actions]
    known = {flag for action in actions for flag in action.option_strings}
    text = (ROOT / page).read_text(encoding="utf-8")
    for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
        assert flag in known or flag == "--runner", flag


def test_the_time_of_elements_without_one_is_beams():
    text = (ROOT / "docs" / "guide" / "elements.md").read_text(encoding="utf-8")
    assert f"timestamp={MIN_TIMESTAMP.micros}`" in text


def test_every_option_has_help():
    for parser in PARSERS:
        for action in parser._actions:
            assert action.help, action.dest


def test_pointers_in_code_lead_to_pages_and_headings():
    rooms = ("beam_dpcount", "pipelines", "engines", "examples", "benchmarks", "tests")
    paths = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in {*paths, ROOT / "Makefile"}}
    del texts[Path(__file__).resolve()]
    assert sum(bool(POINTER.search(text)) for text in texts.values()) > 20
    assert not {path.name: broken for path in texts if (broken := broken_pointers(texts[path]))}
