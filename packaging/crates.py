"""What the binary is made of: its crates, their licences, and the bill of materials.

Owns the list of crates that are compiled into it, as cargo resolves them, and the texts that have to go
along. Fails on a crate whose licence text is missing. Never asks a network for anything.
"""

import hashlib
import html.parser
import importlib.util
import json
import pathlib
import re
import subprocess
import tomllib
import uuid
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
# How crates name the files that hold their terms.
TERMS = re.compile(r"(licen[sc]e|copying|notice|unlicense|copyright)([-._].*)?", re.IGNORECASE)
# These ship no text. Their terms are standard texts, one of those that they offer: the Apache License
# 2.0 is ours as well, and the MIT licence names who holds the copyright.
WITHOUT_TEXT = {"fxhash": "Apache-2.0", "include_dir": "MIT", "tiktoken-rs": "MIT"}
# Whose work is in such a crate beside its authors': the code and the vocabularies of tiktoken.
COPIED = {"tiktoken-rs": ["2022 OpenAI, Shantanu Jain"]}
# The other of two licences: zstd's authors offer BSD or GPL, and it is used under BSD.
NOT_TAKEN = {("zstd-sys", "zstd/COPYING")}

MIT = """\
MIT License

Copyright (c) {holders}

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE."""


class Missing(Exception):
    """A text that has to go along and is not there."""


@dataclass
class Crate:
    """One crate that is compiled into the binary."""

    name: str
    version: str
    licence: str
    authors: list[str]
    folder: pathlib.Path
    # SHA-256 of the archive that it came in; none for the project's own.
    checksum: str | None
    needs: list[str] = field(default_factory=list)

    @property
    def id(self):
        """As `cargo tree` names it."""
        return f"{self.name} v{self.version}"


def cargo(*arguments):
    """What cargo prints."""
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def version():
    """The version, which is Cargo.toml's everywhere."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]


def shipped(triple):
    """The crates that are linked into the binary for `triple`, in order of their names."""
    tree = cargo(
        *"tree --locked --package plimsoll --edges normal,no-proc-macro --prefix none --no-dedupe".split(),
        *("--target", triple, "--format", "{p}"),
    )
    # Crates of the project are followed by their folder.
    linked = {" ".join(line.split()[:2]) for line in tree.splitlines()}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {f"{entry['name']} v{entry['version']}": entry.get("checksum") for entry in lock}
    told = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", triple))
    names = {package["id"]: f"{package['name']} v{package['version']}" for package in told["packages"]}
    needs = {
        names[node["id"]]: sorted(names[other] for other in node["dependencies"] if names[other] in linked)
        for node in told["resolve"]["nodes"]
    }
    crates = [
        Crate(
            package["name"],
            package["version"],
            # An older way to write OR.
            (package["license"] or "").replace("/", " OR ").replace("  ", " "),
            package["authors"],
            pathlib.Path(package["manifest_path"]).parent,
            checksums[names[package["id"]]],
            needs[names[package["id"]]],
        )
        for package in told["packages"]
        if names[package["id"]] in linked
    ]
    if {crate.id for crate in crates} != linked:
        raise Missing(f"cargo metadata leaves out {linked - {crate.id for crate in crates}}")
    return sorted(crates, key=lambda crate: crate.id)


def texts(crate):
    """The licence texts of a crate, with those of the C and of the copied code in it, by path."""
    found = {
        str(path.relative_to(crate.folder)): path.read_text(errors="replace").strip()
        for path in sorted(crate.folder.rglob("*"))
        if TERMS.fullmatch(path.name) and path.is_file()
    }
    found = {path: text for path, text in found.items() if (crate.name, path) not in NOT_TAKEN}
    # What lies deeper is of parts of the crate alone.
    if all("/" in path for path in found):
        taken = WITHOUT_TEXT.get(crate.name)
        if taken not in crate.licence.split(" OR "):
            raise Missing(
                f"{crate.id} ({crate.licence}) ships no licence text; if it offers Apache-2.0 or MIT, "
                "add it to WITHOUT_TEXT in packaging/crates.py"
            )
        if taken == "MIT":
            found[taken] = MIT.format(holders=", ".join([*crate.authors, *COPIED.get(crate.name, [])]))
        else:
            found[taken] = (ROOT / "LICENSE").read_text().strip()
    return found


class _Page(html.parser.HTMLParser):
    """The text of a page."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_data(self, data):
        self.parts.append(data)


def standard_library():
    """What the makers of Rust say of the standard library and of what is in it."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    path = pathlib.Path(sysroot.stdout.strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if not path.is_file():
        raise Missing(f"{path} is not there; it comes with rustc")
    page = _Page()
    page.feed(path.read_text())
    lines = (line.strip() for line in "".join(page.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def linked_in(static):
    """What the linker adds: the unwinder that comes with zig, or glibc in the static binary."""
    if not static:
        zig = pathlib.Path(importlib.util.find_spec("ziglang").origin).parent
        return {"LLVM's libunwind and compiler-rt": (zig / "lib/libunwind/LICENSE.TXT").read_text().strip()}
    lgpl = pathlib.Path("/usr/share/common-licenses/LGPL-2.1")
    glibc = pathlib.Path("/usr/share/doc/libc6/copyright")
    for path in (lgpl, glibc):
        if not path.is_file():
            raise Missing(f"{path} is not there: a static binary holds glibc, and its terms go along")
    said = (
        "This binary holds glibc, which is under the LGPL 2.1. To put another version of glibc into it, "
        "build it again from the project's source with `packaging/build`."
    )
    return {"The GNU C Library": f"{said}\n\n{glibc.read_text().strip()}\n\n{lgpl.read_text().strip()}"}


def third_party(crates, static):
    """One file with every licence text; a text that several crates share stands there once."""
    users = {}
    for crate in crates:
        # The project's own terms are those of the package.
        if crate.checksum is None:
            continue
        for path, text in texts(crate).items():
            users.setdefault(text, []).append(f"{crate.name} {crate.version} ({crate.licence}): {path}")
    demo = (ROOT / "assets/demo/LICENSE").read_text().strip()
    users.setdefault(demo, []).append("assets/demo (MIT)")
    for name, text in linked_in(static).items():
        users.setdefault(text, []).append(name)
    users[standard_library()] = ["The Rust Standard Library"]
    rule = "=" * 80
    parts = ["What plimsoll is built from, and the terms of each part.\n"]
    for text, names in sorted(users.items(), key=lambda pair: pair[1]):
        parts.append(f"{rule}\n" + "\n".join(names) + f"\n{rule}\n\n{text}\n")
    return "\n".join(parts)


def bill_of_materials(crates, when):
    """The bill of materials as CycloneDX 1.6: every crate, its licence and hash, and what needs what."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def component(crate):
        # Whatever is not the binary itself is a library, and the project's own have no archive.
        own = crate.name == "plimsoll"
        return Component(
            name=crate.name,
            version=crate.version,
            type=ComponentType.APPLICATION if own else ComponentType.LIBRARY,
            bom_ref=crate.id,
            purl=PackageURL("cargo", name=crate.name, version=crate.version),
            licenses=[LicenseExpression(crate.licence)],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=crate.checksum)] if crate.checksum else [],
        )

    components = {crate.id: component(crate) for crate in crates}
    # The same crates give the same file.
    listed = "\n".join(f"{crate.id} {crate.checksum}" for crate in crates)
    bom = Bom(serial_number=uuid.UUID(hashlib.sha256(listed.encode()).hexdigest()[:32], version=4))
    bom.metadata.timestamp = when
    bom.metadata.component = next(c for c in components.values() if c.name == "plimsoll")
    for made in components.values():
        if made is not bom.metadata.component:
            bom.components.add(made)
    for crate in crates:
        bom.register_dependency(components[crate.id], [components[other] for other in crate.needs])
    return JsonV1Dot6(bom).output_as_string(indent=1)
