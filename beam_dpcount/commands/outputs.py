"""Which files a run writes, and why it may not: all that is said before anything is counted."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Sequence

from beam_dpcount.budget.account_file import is_account
from beam_dpcount.commands import manifest, spending
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files import streams, tables
from beam_dpcount.commands.files.addresses import address_of, is_afar, is_file, is_table
from beam_dpcount.commands.files.formats import STANDARD, InputError
from beam_dpcount.commands.options import named_as_options


def there(options: argparse.Namespace) -> list[str]:
    """A note on outputs that are there already, which a dry run leaves as they are."""
    try:
        manifest.check_new(named(options))
    except InputError as error:
        return [] if options.overwrite else [f"note: {error}"]
    return []


def named(options: argparse.Namespace) -> list[str]:
    """The files that are written."""
    return [*place(options), *filter(None, (options.rejected, options.plot, options.report))]


def place(options: argparse.Namespace) -> list[str]:
    """The output and its manifest, if it is a file."""
    output = options.output
    return [output, manifest.path_of(output)] if is_file(output) else []


def check(options: argparse.Namespace, paths: Sequence[str]) -> None:
    """Raise InputError for outputs that cannot be written, or overwrite an input or each other."""
    outputs = named(options)
    check_table(options)
    if options.output == STANDARD:
        streams.check(options.output_format)
    elif options.output_format is not None:
        raise InputError("--output-format is for --output -; else the name of OUT says it")
    elif not is_table(options.output):
        tables.check_output(options.output)
    check_files(options, paths, outputs)
    if options.account is not None:
        with named_as_options(options):
            spending.check_place(options.account, [*paths, *outputs])
    if options.rejected:
        if options.on_reject == "raise":
            raise InputError("give --rejected or --on-reject raise, not both")
        if not options.rejected.endswith(".csv"):
            raise InputError(f"--rejected must end in .csv, got {options.rejected!r}")
        tables.check_output(options.rejected)
    if not options.overwrite and not options.dry_run:
        manifest.check_new(outputs)


def check_table(options: argparse.Namespace) -> None:
    """Raise InputError for an address that has no table, or has a password."""
    if is_table(options.output):
        address_of(options.output)
        if options.overwrite:
            raise InputError("--overwrite is for files: rows of a table are never overwritten")


def check_files(options: argparse.Namespace, paths: Sequence[str], outputs: Sequence[str]) -> None:
    """Raise InputError for files that would overwrite an input, an account or each other, and for
    pictures that cannot be drawn."""
    inputs = {os.path.realpath(path) for path in paths}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise InputError(f"output {path!r} is an input as well; name another file")
    folders = {os.path.realpath(one) for one in options.input if os.path.isdir(one)}
    for path in outputs:
        if os.path.dirname(os.path.realpath(path)) in folders:
            raise InputError(f"output {path!r} is in a folder that is read; write it elsewhere")
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise InputError("--output, --rejected, --plot and --report must be different files")
    plot_keys.check(options)
    if options.show_truth and not options.plot:
        raise InputError("--show-truth needs --plot PNG")
    if options.plot:
        if importlib.util.find_spec("matplotlib") is None:
            raise InputError("--plot needs matplotlib: pip install 'beam-dpcount[plots]'")
        if not options.plot.endswith(".png"):
            raise InputError(f"--plot must end in .png, got {options.plot!r}")
        tables.check_place(f"--plot {options.plot!r}", options.plot)
        if is_afar(options.output):
            raise InputError("--plot reads the output back, which must be a local file")
    if options.report:
        if not options.report.endswith((".html", ".htm")):
            raise InputError(f"--report must end in .html, got {options.report!r}")
        tables.check_place(f"--report {options.report!r}", options.report)
        if is_afar(options.output):
            raise InputError("--report reads the output back, which must be a local file")
    for path in outputs:
        if is_account(path):
            raise InputError(f"output {path!r} is an account, which is not replaced; name another")
