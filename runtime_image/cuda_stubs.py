"""Empty stand-ins for CUDA's libraries, so that a CUDA build of torch can be imported where no CUDA is installed.

    python cuda_stubs.py --packages=/opt/firsttoken --into=/opt/firsttoken/cuda_stubs

The package index has torch for Linux on x86-64 with CUDA only. On a CPU nothing of CUDA is ever called, but the loader
wants each library and each symbol before it hands out the first. Every function here answers 100 ("no device"); those
that return the text of an error answer one.
Needs gcc, nm and readelf.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

NO_DEVICE = 100  # cudaErrorNoDevice
_OURS = re.compile(r"lib(cu|nccl|nv)[A-Za-z_]*\.so\.\d+")
_NAMES = re.compile(r"^_*(cu|nccl|nv)[A-Za-z0-9_]*$")
# They return a text. Others of such names return an error, and the text by an argument.
_TEXTS = re.compile(r"(?!cu[A-Z]|cupti|cudnnGetLast)\w+(Error|Status)(String|Name)|ncclGetLastError")


def output(*argv: str) -> str:
    """What a tool of the binutils writes."""
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def needed(library: Path) -> set[str]:
    """CUDA's libraries that a library is linked with."""
    return {found[0] for found in _OURS.finditer(output("readelf", "-d", str(library)))}


def undefined(library: Path) -> set[tuple[str, str]]:
    """CUDA's symbols that a library takes from others, each with its version ("" for none)."""
    lines = output("nm", "-D", "--undefined-only", str(library)).splitlines()
    pairs = (line.split()[-1].partition("@")[::2] for line in lines)
    return {(name, version.lstrip("@")) for name, version in pairs if _NAMES.match(name) and "GLIBC" not in version}


def homes(library: Path) -> dict[str, str]:
    """The library that each version of symbols is expected in."""
    found, soname = {}, ""
    for line in output("readelf", "-V", str(library)).splitlines():
        if file := re.search(r"File: (\S+)", line):
            soname = file[1]
        elif name := re.search(r"Name: (\S+)", line):
            found[name[1]] = soname
    return found


def source(names: set[str]) -> str:
    """C of the functions."""
    lines = []
    for name in sorted(names):
        text = _TEXTS.fullmatch(name)
        kind, value = ("const char *", '"CUDA is not here"') if text else ("int ", str(NO_DEVICE))
        lines.append(f"{kind}{name}(void) {{ return {value}; }}")
    return "\n".join(lines) + "\n"


def compile_library(soname: str, symbols: set[tuple[str, str]], into: Path) -> None:
    """One library with the symbols of one soname, under their versions."""
    versions = defaultdict(set)
    for name, version in symbols:
        versions[version].add(name)
    script = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
        for version, names in sorted(versions.items())
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        code, map_file = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        code.write_text(source({name for name, _ in symbols}))
        map_file.write_text(script)
        flags = ["-shared", "-fPIC", "-O1", "-w", "-fno-builtin", "-nostdlib", f"-Wl,-soname,{soname}"]
        flags += [f"-Wl,--version-script={map_file}"] if script else []
        subprocess.run(["gcc", *flags, "-o", str(into / soname), str(code)], check=True)


def main() -> None:
    """Write the libraries that torch below --packages needs into --into."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, required=True, help="folder that holds torch")
    parser.add_argument("--into", type=Path, required=True, help="folder for the stand-ins; put it on LD_LIBRARY_PATH")
    options = parser.parse_args()
    libraries = sorted((options.packages / "torch" / "lib").glob("*.so"))
    sonames = sorted(set().union(*map(needed, libraries)))
    if not sonames:
        parser.error(f"no torch with CUDA below {options.packages}")
    symbols = set().union(*map(undefined, libraries))
    defined = set().union(*(output("nm", "-D", "--defined-only", "-j", str(one)).split() for one in libraries))
    missing = {(name, version) for name, version in symbols if name not in defined}
    # The loader takes an unversioned symbol from any library: the first one has them all.
    home = {"": sonames[0]} | {version: soname for one in libraries for version, soname in homes(one).items()}
    options.into.mkdir(parents=True, exist_ok=True)
    for soname in sonames:
        compile_library(soname, {one for one in missing if home[one[1]] == soname}, options.into)


if __name__ == "__main__":
    main()
