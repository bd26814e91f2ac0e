"""Refusals of every command: one line that names the option and what to do, before anything runs.

A line of a table is a mistake and, after bars, what is said of it. Words are added to the smallest
command line that works; `~--option` takes one out of it. Under [every] are mistakes of all
commands that count, as far as they have the option; [elements] are those without a clock.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beam_dpcount.commands import (
    COMMANDS,
    bounds,
    choose,
    errors,
)
from tests.command_lines import BUDGET, SECRET, SECRET_TEXT, command, fail, without
from tests.each_command import MAIN, MORE, TASK

REFUSED = r"""
[every]
--input absent.csv | no file matches 'absent.csv'
--input | --input
--key whom | header | no column 'whom' among 5; | --show-header
--key whom --show-header | among 5: 'time', 'who', 'letter', 'u', 'v'; did you mean
--key '' | empty name
--timestamp times | header | no column 'times'
--horizon -5 | horizon | from 1 | got -5
--horizon 0 | horizon | from 1 | got 0
--horizon many | --horizon | 'many'
--horizon 1.5 | --horizon
--horizon inf | --horizon
--horizon nan | --horizon
--mechanism Smooth | unknown mechanism 'Smooth' | SmoothBinary
--mechanism kary --rho 1 | --rho | not both
--rho 1 | --rho | --epsilon | not both
--epsilon -1 | epsilon | positive | -1
--epsilon nan | epsilon | positive
--epsilon 0 | --epsilon | positive | '0' | give e.g. --epsilon 1
--epsilon one | --epsilon | 'one'
--delta 2 | delta | below 1 | 2
--delta 0 | delta | positive | pure DP
~--epsilon | --epsilon 1
~--epsilon ~--delta | give a budget: --epsilon 1 --delta 1e-6
--bounds 4 0 | --bounds | low < high | e.g. --bounds 0 1
--bounds 0 inf | --bounds | finite
--bounds low 1 | --bounds | numbers
--bounds 4 | --bounds | expected 2
--unit 0 | --unit | positive | e.g. --unit 0.01
--relation none | --relation | 'none'
--path batch | --path | 'batch' | streaming
--delimiter ab | delimiter | one character | 'ab'
--delimiter '' | delimiter | one character
--delimiter ; | no column ' | --delimiter
--timezone Mars/Olympus | time zone 'Mars/Olympus' | Europe/Paris
--timestamp-format seconds | --timestamp-format 'seconds' | unix
--output counts.txt | output | .jsonl.gz or .parquet, or be - for | counts.txt
--output absent/counts.csv | no directory 'absent' | create it
--output . | output
--output o*.csv | * ? [
--output events.csv | is an input as well
--output ./events.csv | is an input as well
--input *.csv --output events.csv | is an input as well
--output-format jsonl | --output-format is for --output -; else the name of OUT says it
--rejected rejected.txt | --rejected | .csv
--rejected absent/r.csv | no directory 'absent'
--rejected r.csv --on-reject raise | --rejected | not both
--rejected out.csv | different
--rejected events.csv | an input
--on-reject ignore | --on-reject | 'ignore' | raise
--plot counts.jpg | --plot | .png
--plot absent/counts.png | --plot | 'absent'
--report r.csv | --report must end in .html, got 'r.csv'
--report absent/r.html | there is no directory 'absent'
--report r.html --output gs://x/o.csv | --report reads the output back
--report r.html --plot r.html | must be different files
--report r.html --show-truth | --show-truth needs --plot
--show-truth | --show-truth needs --plot
--plot-keys ann | --plot-keys needs --plot PNG or --report HTML
--plot c.png --plot-keys a a | --plot-keys: a key is there twice
--plot c.png --plot-keys 0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o | room for 24 keys, got 25
--top 0 | --top must be a whole number from 1
--every 0 | --every must be a whole number from 1 | got 0
--every 61 | --every is 61 steps, but the horizon has only 60
--horizn 3 | unknown argument --horizn: did you mean --horizon?
--horizn=3 | unknown argument --horizn: did you mean --horizon? | --help
--plt x.png | unknown argument --plt: did you mean --plot?
--runer Fastest | --runer: did you mean --runner?
--runner BundleBasedDirectRunner --horizn 3 | --horizn
stray | stray
--check --dry-run | not both
--dry_run | --dry_run is Beam's, and would count: give --dry-run
--dry_run=True | --dry_run is Beam's, and would count: give --dry-run
--dryrun | did you mean --dry-run?
--dry-run --key whom | no column 'whom'
--run-id may | --run-id is for replayable noise: give --secret-env or --secret-file
--user who | --user needs --per-user K, the most rows of a person that count
--per-user 5 | --per-user needs --user COLUMN, which says whose a row is
--per-key 5 | --per-key needs --user COLUMN
--max-keys 5 | --max-keys needs --user COLUMN
--user who --per-user 0 | --per-user must be a whole number from 1, got 0
--user who --per-user 5 --max-keys 0 | --max-keys must be a whole number from 1, got 0
--user who --per-user 5 --per-key -1 | --per-key must be a whole number from 1, got -1
--user who --per-user x | --per-user: must be a whole number, got 'x': give e.g. --per-user 5
--user '' --per-user 5 | got an empty name
--user nobody --per-user 5 | no column 'nobody'
--max-items 2 | --separator and --max-items together
--separator ; | --separator and --max-items together
--separator '' --max-items 2 | --separator must not be empty

[elements]
~--timestamp --runner Fastest | runner | Fastest
~--delta --epsilon 1e-320 | budget
~--horizon | --horizon
~--horizon --horizn 3 | --horizon
--horizon 0 | --horizon must
--mechanism SmoothBinary ~--delta | Gaussian | BridgedKAry or SmoothLaplace | --delta 1e-6
--timestamp who | row 1 | column 'who' | another format: expected seconds since 1970, or ISO 8601 | --timestamp-format
--timestamp-format iso | row 1 | column 'time' | iso | --timestamp-format
--plot o.png --plot-keys a ~--key | --key

[count]
--gap 1h | unknown argument --gap
--horizon 0 | --horizon 100_000
--value amounts | header | no column 'amounts'
--value who | 'who' | the keys as well | public per element | beam-dpcount ticks
--value time | 'time' | the times as well | nothing would be protected
--where who=ann | --where | --value
--unit 99 | --unit 99 | smaller
~--bounds | needs --bounds
~--value ~--bounds --where v | COLUMN=VALUE
~--value ~--bounds --where =v | COLUMN=VALUE
~--value ~--bounds --where who=a | keys as well
~--value ~--bounds --where u=1 --where who=a | given twice

[ticks]
--runner Fastest | runner | Fastest
~--delta --epsilon 1e-320 | budget
~--key | --keys needs --key COLUMN
~--key ~--keys --select-keys | --select-keys needs --key COLUMN
~--key ~--keys --separator ; --max-items 2 | --separator needs --key COLUMN
~--keys | --key who needs the keys | --keys KEY | --select-keys
~--keys --separator ; --max-items 2 | --key who needs the keys
~--tick | --tick
~--start | --start
~--horizon | give --stop, the time
~--timestamp | --timestamp
--metric 'sum(amounts, 0, 1)' | no column 'amounts'
--value u | unknown argument --value
--plot c.png --plot-keys zoe | --plot-keys: 'zoe' is not one of --keys
--tick 0 | --tick | positive | '0' | e.g. --tick 10m
--tick 10x | --tick | '10x' | s, m, h, d
--tick 1e-7 | --tick | whole microseconds
--tick soon | --tick | 'soon'
--tick nan | --tick | positive | 'nan'
--start noon | --start is not a time, got 'noon' | ISO 8601
--stop noon | --stop is not a time, got 'noon' | ISO 8601
--start 1117838570000 | --start lies outside | milliseconds? give seconds
--stop 100 | --stop must be after --start | '100' | give a later --stop
--stop 50 | --stop must be after --start | or --horizon
--stop 130 --horizon 2 | horizon is 2 | 3 ticks
--late never | --late | 'never' | fold
--max-per-tick 0 | --max-per-tick must be | from 1
--max-items 7 --separator ; | --max-items | from 1 to 6 | got 7
--separator n --max-items 2 | --keys: 'ann' holds the --separator 'n'
--keys ann ann | --keys: 'ann' is there twice
--keys | --keys
--keys-file events.csv | --keys | not allowed
--relation none | replace_one
~--keys --keys-file none | 'none': cannot be
~--keys --keys-file blank | it is empty
~--keys --keys-file bytes | not UTF-8
~--keys --keys-file out.csv | another file
~--keys --keys-file ./events.csv | is not public
--key who letter | --key names who and letter, the levels of a tree, which needs --hierarchy-file
--level-shares 1 2 | --level-shares needs --hierarchy-file
--level-shares 1 x | --level-shares: must be finite numbers, got 1 x: give one for each level
~--keys --hierarchy-file leaves --level-shares 1 2 3 | --level-shares must be 2 numbers
--hierarchy-file leaves | --hierarchy-file: not allowed with argument --keys
~--keys ~--key --hierarchy-file leaves | --hierarchy-file needs --key COLUMN
~--keys --hierarchy-file none | 'none': cannot be
~--keys --hierarchy-file blank | it is empty
~--keys --hierarchy-file bytes | not UTF-8
~--keys --hierarchy-file ./events.csv | is not public
~--keys --hierarchy-file leaves --key who letter | one column 'letter' (--key), has 'who', 'u'
~--keys --hierarchy-file uneven | not as many cells as the header
~--keys --hierarchy-file header | --hierarchy-file is empty
~--keys --hierarchy-file leaves --separator ; --max-items 2 | --hierarchy-file does not go with --separator
~--keys --hierarchy-file leaves --metric people --user u --per-user 2 | --metric is one Count or Sum
~--keys --hierarchy-file leaves --metric count --metric 'sum(u, 0, 1)' | a run of its own
~--keys --hierarchy-file leaves --view each --view so-far | --view is one view | a run of its own
~--keys --hierarchy-file leaves ~--delta | --epsilon is epsilon = 1 (pure) | give --delta as well
~--keys --hierarchy-file leaves --alarm 5 | --alarm: keys are a tree
~--keys --hierarchy-file leaves --user u --per-user 2 --gap 1m | --gap is between | leave --gap out
~--keys --hierarchy-file leaves --key who u --plot c.png --plot-keys zoe | 'zoe' is not one of
--gap 1h | --gap needs --user COLUMN
--user who --per-user 5 --gap w | e.g. --gap 1h
--user who --per-user 5 --gap 1h --path streaming --late fold | --gap with --path streaming needs --late drop
--user who --per-user 5 --gap 1h --separator ; --max-items 2 | --gap does not go with --separator
--select-delta 1e-7 | --select-delta needs --select-keys
--at-least 2 | --at-least needs --select-keys
--select-every 2 | --select-every needs --select-keys
~--keys --select-delta 1e-7 | --key who needs the keys: give --keys KEY
~--keys --at-least 2 | --key who needs the keys: give --keys KEY
~--keys --select-every 2 | --key who needs the keys: give --keys KEY
--path streaming --runner BundleBasedDirectRunner | fires no ticks of files on BundleBasedDirectRunner
--until 9e9 | --until is 2255-03-14T16:00:00Z, later than now,
--until x | --until is not a time, got 'x'
--until 5 --path streaming | --until is for bounded input: in a stream

[select]
~--epsilon ~--delta --rho 1 | --select-keys needs a delta, and --rho has none | --select-delta 1e-7
~--delta | and --epsilon alone has none
--select-delta 1e-6 | leaves nothing of --delta 1e-06 | give less
--select-delta 0 | --select-delta | positive | e.g. --select-delta
--at-least 0 | --at-least must be a whole number from 1, got 0
--select-every 0 | --select-every must be a whole number from 1, got 0
--select-every 7 | --select-every is 7, but there are 6 ticks
--at-least 2 --metric count --metric sum(u,-1,1) | --at-least
--at-least 2 --user v --per-user 2 --gap 10 | --at-least does not go with a gap
--keys ann | --keys: not allowed with argument --select-keys
--keys-file x | --keys-file: not allowed with argument --select-keys
--separator ; --max-items 0 | --max-items must be a whole number

[histogram]
--gap 1h | unknown argument --gap
~--item | --item
~--item --keyvalues a | required | ; --keyvalues is no option of ours
--item who | 'who' | the keys as well | nothing would be protected
--item time | 'time' | the times as well | name another column
--item that | no column 'that'
--item '' | empty name
--user who --per-user 9 --item who ~--key | 'who' is counted and holds the people as well
--domain | --domain
--domain a b a | --domain: 'a' is there twice
--domain a step | 'step' | column
--domain-file events.csv | --domain | not allowed
~--domain | --domain
~--domain --domain-file none | 'none': cannot be read
~--domain --domain-file blank | it is empty
~--domain --domain-file out.csv | another file
~--domain --domain-file large --horizon 100000 --mechanism SmoothBinary | 200000 counts take
--fit-total --relation add_remove | --relation add_remove | --fit-total out
--fit-total --separator ; --max-items 2 | --fit-total takes one item a row
--separator ; --max-items 4 | --max-items | from 1 to 2 | got 4
--domain a,b c --separator , --max-items 2 | --domain: | holds the --separator ','
--plot o.png --plot-keys a ~--key | --plot-keys needs --key: without it there is one key

[sequences]
~--letter | --letter
--letter who --key who | 'who' | the keys as well | nothing would be protected
--letter time | 'time' | the times as well | name another column
--letter that | no column 'that'
--domain | --domain
~--domain | --domain
--domain a b a | --domain: 'a' is there twice
--domain a '' | --domain holds "" | empty step
--domain a 'b c' | --domain: letter 'b c' holds a space
--domain-file events.csv | --domain | not allowed
--words ab | --words | not allowed | --max-length
--rest other | --rest 'other' is not in the domain | --domain
--max-length 0 | --max-length must be a whole number from 1 | got 0
--max-length x | --max-length | 'x'
--max-length 25 | 2 letters make 67,108,862 words | smaller --max-length | --rest | --words
--max-length 25 --episodes | make 67,108,862 episodes | --max-length,
--max-length 17 --mechanism SmoothBinary | 262142 counts take | a smaller --domain or --max-length
--max-span 3 | --max-span is for --episodes
--episodes --max-span 1 | --max-span 1 steps hold no episode of 2 letters
--episodes --max-span 0 | --max-span must be a whole number from 1
--min-count nan | --min-count | 'nan'
--min-count few | --min-count | 'few'
--maxlength=3 | unknown argument --maxlength: did you mean --max-length?
~--max-length | --max-length --words --words-file is required
~--max-length --words ac | --words: word 'ac' holds 'c', which is not
~--max-length --words a a | --words: 'a' is there twice
~--max-length --words a '' | --words: '' has no letters
~--max-length --domain a b cc --words-file twice | --words: word 'a  b' is there
~--max-length --words-file none | 'none': cannot be read
~--max-length --words-file blank | it is empty
~--max-length --words-file out.csv | another file
~--delta --mechanism BLT | --mechanism BLT takes

[graph]
~--what | --what
~--edge | --edge
~--vertices | --vertices
--what paths | --what | 'paths'
--what triangles | --what triangles needs --max-degree
--what kstars --max-degree 3 | --what kstars needs -k
--what kstars --max-degree 3 -k 4 | -k must be from 1 to 3 | got 4
--what highdegree | needs --threshold
--what highdegree --threshold 5 | --threshold must be from 1 to 4
--what forest | needs --max-weight
--what forest --max-weight 0 | --max-weight must be from 1 | got 0
--what degrees --max-degree 5 | --max-degree must be from 1 to 4, got 5
--what degrees --max-degree few | --max-degree | 'few'
--threshold 2 | --threshold is not for --what edges, but for highdegree
-k 2 | -k is not for --what edges, but for kstars
--weight letter | --weight is not for --what edges, but for forest, cuts
--what cuts --max-degree 2 | --max-degree is not for --what cuts
--what cuts --unit 0.3 | --unit must divide 1 | got 0.3
--what cuts --relation edge | must be replace_one or add_remove, got edge
--relation replace_one | --what edges must be edge or node, got replace_one
--relation node | --relation node | --max-degree and --asserted
--asserted | --asserted | --max-degree
--edge u | --edge
--edge u u | --edge must name two columns
--edge u whom | no column 'whom' among 5; | --show-header
--edge u whom --show-header | among 5: 'time', 'who', 'letter', 'u', 'v'
--edge u who --key who | 'who' | the keys as well | nothing would be protected
--edge time v | 'time' | the times as well | name another column
--what forest --max-weight 3 --weight who --key who | 'who' | the keys as well
--what forest --max-weight 3 --weight w | no column 'w'
--edge u '' | --edge | empty name
--vertices-file blank | --vertices | not allowed
--vertexes=3 | unknown argument --vertexes: did you mean --vertices?
--vertices 1 | --vertices: a graph has 2
--vertices 1e10 | --vertices must be from 2
--what cuts --vertices 501 | up to 500 of them, got 501
~--vertices --vertices-file none | cannot be read
~--vertices --vertices-file blank | it is empty
~--vertices --vertices-file one | 2 vertices or more
~--vertices --vertices-file repeated | 'a' is there twice
~--vertices --vertices-file dashes --what cuts | the same label
--what degrees --vertices 9000 --max-degree 8000 --horizon 100000 --mechanism SquareRoot | give a smaller --max-degree
--what kstars --vertices 9000 --max-degree 8000 -k 20 | choose a smaller --max-degree or -k

[choose]
~--horizon | give --horizon, the most elements that any key will have, or --ticks
--ticks 9 | not allowed with argument
--max-per-tick 9 | --max-per-tick goes with --ticks
~--horizon --ticks 0 | --ticks must be a whole number from 1, got 0
~--horizon --ticks 9 --max-per-tick 0 | --max-per-tick must be a whole number from 1
--replay | unknown argument --replay: did you mean --replays?
~--horizon --ticks 9 --unit 5 | --unit 5

[errors]
~--horizon | give --horizon, the most elements that any key will have, or --ticks
~--epsilon ~--delta | give a budget
--horizon 0 | --horizon must be from 1
--max-per-tick 3 | --max-per-tick goes with --ticks
--per-key 3 | --per-key needs --per-user K
--visible 0 | must be a positive, finite number
--plot x.pdf | --plot must end in .png
--keys 0 | --keys must be a whole number from 1
~--delta --mechanism BLT | takes Gaussian noise
~--horizon --ticks 9 --keys FATAL INFO | --keys: must be a whole number, got 'FATAL': say how many there are

[bounds]
--per-user 3 0 | --per-user must be a whole number from 1, got 0
--per-key x | --per-key: must be a whole number, got x: give e.g. --per-key 2
--gap w | e.g. --gap 1h
--sample 2 | --sample must be a number above 0, up to 1, got 2.0
--horizon 0 | --horizon must be
--value u | --value needs --bounds
--user whom | no column 'whom'
--output x.csv | unknown argument --output
"""  # noqa: E501
FILES = {
    "events.csv": "time,who,letter,u,v\n" + f"{','.join([SECRET_TEXT] * 3)},1,{SECRET}\n" * 2,
    "blank": "\n\n",
    "leaves": "who,u\nann,1\nbob,2\n",
    "uneven": "who,u\nann\nbob,2\n",
    "header": "who,u\n",
    "bytes": "\udcff\n",
    "dashes": "a\nb-c\na-b\nc\n",
    "large": "\n".join(map(str, range(200_000))),
    "one": "a\n",
    "repeated": "a\nb\na\n",
    "twice": "a b\na  b\n",
}
# The smallest command lines that work, but for the budget.
COUNTING = ("--input", "events.csv", "--timestamp", "time", "--output", "out.csv")
CLOCK = ("--key", "who", "--tick", 10, "--start", 100, "--horizon", 6)
SIX = ("ann", "bob", "cyd", "dan", "eve", "fay")
BARE: dict[str, tuple[Any, ...]] = {
    "count": ("--key", "who", "--value", "u", "--bounds", 0, 4, "--horizon", 60),
    "ticks": (*CLOCK, "--keys", *SIX),
    "select": (*CLOCK, "--select-keys"),
    "histogram": ("--key", "who", "--item", "letter", "--domain", "a", "b", "--horizon", 60),
    "sequences": ("--key", "who", *MORE["sequences"]),
    "graph": ("--key", "who", *MORE["graph"]),
    "choose": ("--horizon", 9),
    "errors": ("--horizon", 9),
    "bounds": ("--input", "events.csv", "--user", "v", "--timestamp", "time", *CLOCK, "--keys", 1),
}  # fmt: skip
OTHERS = {"choose": choose, "errors": errors, "bounds": bounds}
SECTIONS = {
    head: body.splitlines()
    for head, body in re.findall(r"(?m)^\[(\w+)\]\n((?:[^\[\n].*\n)+)", REFUSED)
}


OPTIONS = {kind: {*TASK[kind].parser().names()} for kind in BARE if kind in TASK}
SHARED = set().union(*OPTIONS.values())


def mistakes(kind: str) -> list[str]:
    """The lines of the tables that are about a command."""
    if kind in OTHERS:
        return SECTIONS[kind]
    theirs = SHARED - OPTIONS[kind]
    heads = ("every",) if kind in ("ticks", "select") else ("every", "elements")
    shared = [line for head in heads for line in SECTIONS[head]]
    options = {line: {*re.findall(r"--[a-z-]+", line.split(" | ")[0])} for line in shared}
    return [*(line for line in shared if not theirs & options[line]), *SECTIONS[kind]]


def refused(kind: str, flags: Sequence[str]) -> str:
    """What is said of these words after the smallest command line."""
    gone = [word[1:] for word in flags if word.startswith("~")]
    words = (*(() if kind in OTHERS else COUNTING), *BARE[kind], *BUDGET)
    main = OTHERS[kind].main if kind in OTHERS else MAIN[kind]
    more = [word for word in flags if not word.startswith("~")]
    return fail(*without(words, *gone), *more, run=partial(command, main=main), started=False)


@pytest.mark.parametrize("kind", BARE)
def test_mistakes_take_one_line_and_start_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {name: text.encode("utf-8", "surrogateescape") for name, text in FILES.items()}
    for name, content in files.items():
        Path(name).write_bytes(content)
    wrong = []
    for line in mistakes(kind):
        flags, *parts = line.split(" | ")
        try:
            text = refused(kind, shlex.split(flags))
        except AssertionError as error:
            text = f"not refused in one line: {error}"
        spelt = not re.search(r"max_|min_|timestamp_|asserted=", text)  # not as in the library
        # It is refused before a row is read: here its time is not a number.
        early = "row 1" not in text or "row 1" in line
        if not (spelt and early and all(part in text for part in parts)):
            wrong.append(f"{line}\n  {text}")
    assert not wrong, "\n".join(wrong)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_each_command_is_in_the_table_and_each_mistake_is_tried() -> None:
    tried = {line for kind in BARE for line in mistakes(kind)}
    assert tried == {line for line in REFUSED.splitlines() if " | " in line}
    assert {*SECTIONS} == {*BARE, "every", "elements"}
    # `test_account.py` and `test_plan_files.py` have those of accounts and plans.
    without_mistakes = {"account", "demo", "run", "select"}
    assert {*BARE} == {*COMMANDS} - without_mistakes | {"select"}
