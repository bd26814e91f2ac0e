"""Flink from PyPI, and our translation of Beam's pipelines, compiled for it.

    python -m tests.engines.flink.install

gets both, unless that was done, and prints where they are, and on stderr the versions in use.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import zipfile
from functools import cache as once_a_process
from pathlib import Path

from engines.cache import UnavailableError, cache, need, once, said

VERSION = "2.0.2"
PACKAGE = "apache-flink-libraries"
SERVICE = "org.apache.beam.runners.core.construction.NativeTransforms$IsNativeTransform"
SOURCES = sorted(Path(__file__).parent.glob("*.java"))


@once_a_process
def flink() -> Path:
    """The directory with Flink's lib, opt and plugins.

    Raises:
      UnavailableError: the package could not be had.
    """

    def unpack(scratch: Path) -> Path:
        # A source archive of jars, as there is no wheel.
        wanted = f"{PACKAGE}=={VERSION}"
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:")
        need(wanted, *pip, "--dest", str(scratch), wanted)
        (archive,) = scratch.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                folder, _, rest = member.name.partition("/")
                if rest.startswith("deps/"):
                    tar.extract(member, scratch, filter="data")
        return scratch / folder / "deps"

    return once(cache() / f"flink-{VERSION}", unpack)


def libraries() -> str:
    """Flink alone, as it is installed: what a cluster loads that jobs bring their own Beam to.

    Raises:
      UnavailableError: Flink could not be had.
    """
    return f"{flink()}/lib/*"


@once_a_process
def classpath() -> str:
    """All that Flink's processes, and those that submit to it, load.

    Raises:
      UnavailableError: Flink could not be had, or there is no Java to compile with.
    """
    need("Flink", "java", "-version")
    (release,) = re.findall(r'version "([0-9]+)', said("java", "-version").splitlines()[0])
    if int(release) < 17:
        raise UnavailableError(f"Java {release} is too old: 17 or later is needed for Flink")
    jars = f"{libraries()}{os.pathsep}{flink()}/opt/flink-python-{VERSION}.jar"
    sources = b"".join(path.read_bytes() for path in SOURCES)
    name = f"flink-{VERSION}-stages-{hashlib.sha256(sources).hexdigest()[:16]}"

    def compile_all(scratch: Path) -> Path:
        names = [str(path) for path in SOURCES]
        made = scratch / "classes"
        options = ("-nowarn", "--release", "17", "-cp", jars, "-d", str(made))
        need("our pipelines on Flink", "javac", *options, *names)
        service = made / "META-INF" / "services" / SERVICE
        service.parent.mkdir(parents=True)
        service.write_text("PortablePipeline$Native\n")
        return made

    return f"{once(cache() / name, compile_all)}{os.pathsep}{jars}"


def versions() -> str:
    """Flink's, Java's and that of the Beam in Flink's jar, in one line."""
    (java,) = re.findall(r'version "([^"]+)"', said("java", "-version").splitlines()[0])
    with zipfile.ZipFile(flink() / "opt" / f"flink-python-{VERSION}.jar") as jar:
        properties = jar.read("org/apache/beam/sdk/sdk.properties").decode()
    (beam,) = re.findall(r"^version=(.+)$", properties, re.MULTILINE)
    return f"Flink {VERSION}, with the Fn API of Beam {beam.strip()}; Java {java}"


def main() -> None:
    """The command: exit status 3 where Flink cannot be had."""
    try:
        print(classpath())
    except UnavailableError as missing:
        print(missing, file=sys.stderr)
        sys.exit(3)
    print(versions(), file=sys.stderr)


if __name__ == "__main__":
    main()
