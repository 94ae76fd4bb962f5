"""Packs a binary that is already built: a wheel, npm packages, a .deb, and an archive of the static one.

`packaging/build` calls this. Owns the form of each package, the names of the files, and SHA256SUMS. Never
compiles, and takes the version from Cargo.toml alone.
"""

import argparse
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass

import crates

ROOT = crates.ROOT
DESCRIPTION = "The load line for an agent's context window: an OpenAI-compatible reverse proxy"
# Where each shell looks for completions, below /usr/share.
COMPLETIONS = {
    "bash": "bash-completion/completions/plimsoll",
    "zsh": "zsh/vendor-completions/_plimsoll",
    "fish": "fish/vendor_completions.d/plimsoll.fish",
}
# What manylinux2014 promises.
OLDEST_GLIBC = (2, 17)


@dataclass(frozen=True)
class System:
    """What each kind of package calls the system that a binary is for."""

    triple: str

    @property
    def linux(self):
        return self.triple.endswith("-linux-gnu")

    @property
    def cpu(self):
        return self.triple.split("-")[0]

    @property
    def npm(self):
        cpu = {"x86_64": "x64", "aarch64": "arm64"}[self.cpu]
        return ("linux" if self.linux else "darwin"), cpu

    @property
    def deb(self):
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.cpu]

    def wheel(self, glibc):
        """The wheel's platform. A binary that needs a newer glibc than manylinux2014 is for this machine."""
        if not self.linux:
            return "macosx_11_0_arm64"
        if glibc <= OLDEST_GLIBC:
            return f"manylinux_2_17_{self.cpu}.manylinux2014_{self.cpu}"
        return f"linux_{self.cpu}"


def run(*command, **options):
    """Runs a program; its failure is ours."""
    return subprocess.run([str(part) for part in command], check=True, **options)


def needed_glibc(binary):
    """The newest version of glibc that a dynamic binary asks for."""
    told = run("readelf", "--version-info", "--wide", binary, capture_output=True, text=True).stdout
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", told)
    return max((int(major), int(minor)) for major, minor in versions)


def needed_libraries(binary):
    """The shared libraries that a binary asks for."""
    told = run("readelf", "--dynamic", "--wide", binary, capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", told))


def stripped(binary, to):
    """A copy without symbols, whatever the original has."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(binary, to)
    to.chmod(0o755)
    run("strip", to)
    return to


def write(path, content):
    """Writes a file, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class Packer:
    """Everything that packages share: the binary, what it prints of itself, and the terms."""

    def __init__(self, system, binary, work, out, terms, quick):
        self.system = system
        self.quick = quick
        self.version = crates.version()
        self.work = work
        self.out = out
        self.terms = terms
        self.epoch = int(os.environ["SOURCE_DATE_EPOCH"])
        self.binary = stripped(binary, work / "bin/plimsoll")
        self.libraries = needed_libraries(self.binary) if system.linux else set()
        self.completions = {
            shell: run(self.binary, "completions", shell, capture_output=True).stdout for shell in COMPLETIONS
        }
        self.pages = work / "man"
        self.pages.mkdir()
        run(self.binary, "man", self.pages, stdout=subprocess.DEVNULL)

    def age(self, folder):
        """Sets all times to that of the sources, so that the same sources give the same bytes."""
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (self.epoch, self.epoch))

    def wheel(self):
        """The wheel. Its metadata are what maturin makes of pyproject.toml and Cargo.toml."""
        folder = self.work / "wheel"
        folder.mkdir()
        hook = f"import maturin; maturin.prepare_metadata_for_build_wheel({str(folder)!r})"
        run(sys.executable, "-c", hook, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        info = next(folder.glob("*.dist-info"))
        glibc = needed_glibc(self.binary) if self.system.linux else None
        platform = self.system.wheel(glibc)
        tags = "".join(f"Tag: py3-none-{part}\n" for part in platform.split("."))
        write(info / "WHEEL", f"Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: false\n{tags}")
        write(info / "licenses/THIRD-PARTY.txt", self.terms)
        metadata = (info / "METADATA").read_text()
        listed = metadata.replace("License-File: LICENSE\n", "License-File: LICENSE\nLicense-File: THIRD-PARTY.txt\n")
        write(info / "METADATA", listed)
        scripts = folder / info.name.replace(".dist-info", ".data") / "scripts"
        scripts.mkdir(parents=True)
        shutil.copy2(self.binary, scripts / "plimsoll")
        self.age(folder)
        run(sys.executable, "-m", "wheel", "pack", folder, "--dest-dir", self.out, stdout=subprocess.DEVNULL)

    def npm(self):
        """Two packages: the launcher, which every system installs, and the binary of this one."""
        name = "plimsoll-" + "-".join(self.system.npm)
        shared = {"version": self.version, "license": "Apache-2.0", "description": DESCRIPTION}
        place, cpu = self.system.npm
        binary = {"name": name, **shared, "os": [place], "cpu": [cpu], "files": ["bin", "THIRD-PARTY.txt"]}
        if self.system.linux:
            binary["libc"] = ["glibc"]
        launcher = {
            "name": "plimsoll",
            **shared,
            "bin": {"plimsoll": "bin/plimsoll.js"},
            "engines": {"node": ">=18"},
            "files": ["bin"],
            # Those that were built and no others: a name that nobody has published is anybody's.
            "optionalDependencies": {name: self.version},
        }
        for package in (binary, launcher):
            folder = self.work / "npm" / package["name"]
            write(folder / "package.json", json.dumps(package, indent=2) + "\n")
            shutil.copy2(ROOT / "LICENSE", write(folder / "LICENSE", ""))
            if package is binary:
                write(folder / "THIRD-PARTY.txt", self.terms)
                write(folder / "README.md", f"The binary of `plimsoll` for {place}-{cpu}; install `plimsoll`.\n")
                shutil.copy2(self.binary, write(folder / "bin/plimsoll", ""))
            else:
                shutil.copy2(ROOT / "README.md", write(folder / "README.md", ""))
                shutil.copy2(ROOT / "packaging/npm/plimsoll.js", write(folder / "bin/plimsoll.js", ""))
            command = ["npm", "pack", folder, "--pack-destination", self.out.resolve(), "--silent", "--ignore-scripts"]
            run(*command, stdout=subprocess.DEVNULL)

    def deb(self):
        """The .deb: the binary, completions, manual pages, and the settings as an example."""
        folder = self.work / "deb"
        share = folder / "usr/share"
        doc = share / "doc/plimsoll"
        shutil.copy2(self.binary, write(folder / "usr/bin/plimsoll", ""))
        for shell, place in COMPLETIONS.items():
            write(share / place, self.completions[shell])
        for page in self.pages.glob("*.1"):
            write(share / f"man/man1/{page.name}.gz", gzip.compress(page.read_bytes(), mtime=0))
        ours = "plimsoll is under the Apache License 2.0: /usr/share/common-licenses/Apache-2.0\n\n"
        write(doc / "copyright", ours + self.terms)
        write(doc / "changelog.gz", gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))
        for settings in sorted((ROOT / "config").glob("*.toml")):
            write(doc / "examples" / settings.name, settings.read_bytes())
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        glibc = ".".join(map(str, max(needed_glibc(self.binary), OLDEST_GLIBC)))
        needs = [f"libc6 (>= {glibc})"]
        if "libgcc_s.so.1" in self.libraries:
            needs.append("libgcc-s1")
        control = {
            "Package": "plimsoll",
            "Version": self.version,
            "Architecture": self.system.deb,
            "Maintainer": "The Plimsoll authors",
            "Installed-Size": str(size // 1024),
            "Depends": ", ".join(needs),
            # The roots that TLS to the upstream is checked against.
            "Recommends": "ca-certificates",
            "Section": "net",
            "Priority": "optional",
            "Description": DESCRIPTION,
        }
        write(folder / "DEBIAN/control", "".join(f"{key}: {value}\n" for key, value in control.items()))
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() or path.name == "plimsoll" and path.parent.name == "bin" else 0o644)
        self.age(folder)
        # The default takes a minute for a fifth less.
        packed = ["-Zgzip", "-z1"] if self.quick else []
        run("dpkg-deb", "--root-owner-group", *packed, "--build", folder, self.out, stdout=subprocess.DEVNULL)

    def archive(self, static, terms):
        """An archive of the static binary, with completions and manual pages beside it."""
        name = f"plimsoll-{self.version}-{self.system.cpu}-linux-static"
        folder = self.work / name
        stripped(static, folder / "plimsoll")
        needed = needed_libraries(folder / "plimsoll")
        if needed:
            raise crates.Missing(f"{static} is not static: it asks for {', '.join(sorted(needed))}")
        shutil.copy2(ROOT / "LICENSE", folder / "LICENSE")
        write(folder / "THIRD-PARTY.txt", terms)
        for shell, place in COMPLETIONS.items():
            write(folder / "completions" / pathlib.Path(place).name, self.completions[shell])
        shutil.copytree(self.pages, folder / "man")
        for settings in sorted((ROOT / "config").glob("*.toml")):
            write(folder / "config" / settings.name, settings.read_bytes())
        self.age(folder)

        def nobody(entry):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            return entry

        with open(self.out / f"{name}.tar.gz", "wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=self.epoch) as packed:
                with tarfile.open(fileobj=packed, mode="w") as archive:
                    archive.add(folder, arcname=name, filter=nobody)


def epoch():
    """When the sources were last changed: their commit, or what the caller says."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is None:
        log = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
        # 1980 is the oldest time that a wheel can hold; sources without git have none.
        told = log.stdout.strip() or "315532800"
    return told


def sums(out):
    """SHA256SUMS over everything in a directory, as `sha256sum -c` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
        if path.name != "SHA256SUMS"
    ]
    write(out / "SHA256SUMS", "".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triple", required=True, help="what the binary was compiled for, in Rust's words")
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--static", type=pathlib.Path, help="the same, linked statically")
    parser.add_argument("--quick", action="store_true", help="compress lightly, to try packages out")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="emptied first")
    args = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = epoch()
    system = System(args.triple)
    if args.out.exists():
        shutil.rmtree(args.out)
    args.out.mkdir(parents=True)
    linked = crates.shipped(args.triple)
    terms = crates.third_party(linked, static=False)
    with tempfile.TemporaryDirectory() as work:
        packer = Packer(system, args.binary, pathlib.Path(work), args.out, terms, args.quick)
        packer.wheel()
        packer.npm()
        if system.linux:
            packer.deb()
        if args.static:
            packer.archive(args.static, crates.third_party(linked, static=True))
    write(args.out / "THIRD-PARTY.txt", terms)
    when = datetime.datetime.fromtimestamp(packer.epoch, datetime.timezone.utc)
    write(args.out / f"plimsoll-{packer.version}.cdx.json", crates.bill_of_materials(linked, when))
    sums(args.out)
    for path in sorted(args.out.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")


if __name__ == "__main__":
    try:
        main()
    except crates.Missing as missing:
        sys.exit(f"packaging: {missing}")
    except subprocess.CalledProcessError as failed:
        said = failed.stderr or b""
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        sys.exit(f"packaging: {' '.join(map(str, failed.cmd))} failed with {failed.returncode}\n{said}")
