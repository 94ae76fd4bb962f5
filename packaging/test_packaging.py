"""What packages are made from, without a binary: `python -m unittest discover packaging`, some seconds."""

import json
import pathlib
import re
import tempfile
import tomllib
import unittest
from datetime import datetime, timezone

import crates
import pack

TRIPLE = "x86_64-unknown-linux-gnu"


def crate(folder, **fields):
    """A crate of which a test says only what it is about."""
    given = {"name": "one", "version": "1.0.0", "licence": "MIT", "folder": folder}
    given |= {"authors": ["A. Nyone"], "checksum": "0" * 64}
    return crates.Crate(**{**given, **fields})


class Licences(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_a_crate_without_a_text_is_refused_by_name(self):
        self.write("src/lib.rs", "")
        with self.assertRaisesRegex(crates.Missing, r"one v1\.0\.0 \(MIT\)"):
            crates.texts(crate(self.folder))

    def test_the_text_of_a_part_is_not_that_of_the_crate(self):
        self.write("c/LICENSE", "of the part")
        with self.assertRaises(crates.Missing):
            crates.texts(crate(self.folder))

    def test_texts_of_parts_go_along(self):
        for path in ("LICENSE-MIT", "COPYING", "NOTICE.txt", "c/LICENSE"):
            self.write(path, path)
        self.write("licenses.rs", "no text")
        found = crates.texts(crate(self.folder))
        self.assertEqual(found, {path: path for path in ("COPYING", "LICENSE-MIT", "NOTICE.txt", "c/LICENSE")})

    def test_a_standard_text_stands_in_where_it_is_offered(self):
        known = crate(self.folder, name="fxhash", licence="Apache-2.0 OR MIT")
        self.assertIn("Apache License", crates.texts(known)["Apache-2.0"])
        with self.assertRaises(crates.Missing):
            crates.texts(crate(self.folder, name="fxhash", licence="MIT"))
        known = crate(self.folder, name="include_dir", licence="MIT")
        self.assertIn("Copyright (c) A. Nyone", crates.texts(known)["MIT"])

    def test_a_text_of_several_stands_there_once(self):
        self.write("LICENSE", "the one text")
        both = [crate(self.folder), crate(self.folder, name="two")]
        terms = crates.third_party(both, static=False)
        self.assertEqual(terms.count("the one text"), 1)
        self.assertIn("one 1.0.0 (MIT): LICENSE\ntwo 1.0.0 (MIT): LICENSE", terms)


class Shipped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.crates = crates.shipped(TRIPLE)

    def test_what_is_linked_is_there_and_what_tests_need_is_not(self):
        names = {crate.name for crate in self.crates}
        self.assertLess({"plimsoll", "plimsoll-scripted", "tiktoken-rs", "tokio", "tikv-jemalloc-sys"}, names)
        self.assertFalse({"proptest", "bpe-openai", "cc", "serde_derive"} & names)

    def test_every_crate_has_its_texts(self):
        terms = crates.third_party(self.crates, static=False)
        for part in ("Rust Standard Library", "libunwind", "zstd/LICENSE", "assets/demo", "OpenAI, Shantanu Jain"):
            self.assertIn(part, terms)
        self.assertNotIn("GNU GENERAL PUBLIC LICENSE", terms)

    def test_the_bill_names_every_crate_and_what_it_needs(self):
        when = datetime(2026, 1, 1, tzinfo=timezone.utc)
        written = crates.bill_of_materials(self.crates, when)
        self.assertEqual(written, crates.bill_of_materials(self.crates, when), "the same sources, the same file")
        bill = json.loads(written)
        self.assertEqual(bill["metadata"]["component"]["version"], crates.version())
        listed = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
        self.assertEqual(listed, {crate.id for crate in self.crates})
        # The project's own crates come in no archive.
        bare = {part["name"] for part in bill["components"] if "hashes" not in part}
        own = {f"plimsoll-{folder.name}" for folder in (crates.ROOT / "crates").iterdir()}
        self.assertEqual(bare, own | {"plimsoll-scripted"})
        edges = {edge["ref"]: set(edge.get("dependsOn", [])) for edge in bill["dependencies"]}
        reached, open_ = set(), {bill["metadata"]["component"]["bom-ref"]}
        while open_:
            reached |= open_
            open_ = set().union(*(edges[ref] for ref in open_)) - reached
        self.assertLess({"tokio", "zstd-sys"}, {ref.split()[0] for ref in reached})


class Forms(unittest.TestCase):
    def test_the_version_is_that_of_cargo_everywhere(self):
        version = crates.version()
        project = tomllib.loads((crates.ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["dynamic"], ["version"])
        self.assertNotIn("version", project)
        folders = [f"crates/{folder.name}" for folder in (crates.ROOT / "crates").iterdir()]
        for member in ["scripted", "fuzz", *folders]:
            told = tomllib.loads((crates.ROOT / member / "Cargo.toml").read_text())["package"]["version"]
            self.assertEqual(told, version, member)
        changes = (crates.ROOT / "CHANGELOG.md").read_text()
        self.assertTrue(re.search(rf"\b{re.escape(version)}\b", changes), "CHANGELOG.md does not name it")

    def test_one_sentence_describes_it_everywhere(self):
        cargo = tomllib.loads((crates.ROOT / "Cargo.toml").read_text())["package"]["description"]
        project = tomllib.loads((crates.ROOT / "pyproject.toml").read_text())["project"]["description"]
        self.assertEqual({cargo, project}, {pack.DESCRIPTION})

    def test_a_wheel_promises_only_the_glibc_that_it_needs(self):
        linux = pack.System(TRIPLE)
        self.assertEqual(linux.wheel((2, 17)), "manylinux_2_17_x86_64.manylinux2014_x86_64")
        self.assertEqual(linux.wheel((2, 18)), "linux_x86_64")
        self.assertEqual(pack.System("aarch64-apple-darwin").wheel(None), "macosx_11_0_arm64")

    def test_systems_are_named_as_each_package_names_them(self):
        named = {triple: (pack.System(triple).npm, pack.System(triple).deb) for triple in (
            TRIPLE, "aarch64-unknown-linux-gnu", "aarch64-apple-darwin")}
        self.assertEqual(named, {
            TRIPLE: (("linux", "x64"), "amd64"),
            "aarch64-unknown-linux-gnu": (("linux", "arm64"), "arm64"),
            "aarch64-apple-darwin": (("darwin", "arm64"), "arm64"),
        })

    def test_sums_are_of_all_files_but_themselves(self):
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch)
            (out / "b").write_text("two")
            (out / "a").write_text("")
            pack.sums(out)
            pack.sums(out)
            lines = (out / "SHA256SUMS").read_text().splitlines()
        self.assertEqual([line.split("  ")[1] for line in lines], ["a", "b"])
        self.assertTrue(lines[0].startswith("e3b0c44298fc1c149afb"))


if __name__ == "__main__":
    unittest.main()
