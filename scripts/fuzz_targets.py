# SPDX-License-Identifier: Apache-2.0
"""The fuzz targets of the tests, found in the sources: calls of `check` of crates/base/src/fuzz.rs."""

import dataclasses
import pathlib
import re

# The files that may have targets, and the one that calls `check` to test it.
PLACES = ("crates/*/src/**/*.rs", "crates/*/tests/fuzz.rs")
FUZZER = pathlib.Path("crates/base/src/fuzz.rs")
USES = re.compile(r"\b(?:quietwire_base|crate)::fuzz\b")
# A test that runs a target, by its name: the first string that is not the name of a variable.
TEST = re.compile(
    r'#\[test\]\s*fn (\w+)\(\) \{\s*check(?:_for)?\(\s*(?:(?:[A-Z_]+|env!\("CARGO_MANIFEST_DIR"\)),\s*)*"([a-z0-9-]+)"'
)
PLANTED = re.compile(r'\bplanted\(\s*"([a-z0-9-]+)"')


@dataclasses.dataclass(frozen=True)
class Target:
    """A target and the test that runs it."""

    name: str
    crate: str
    # Arguments of cargo that select the test binary.
    binary: tuple
    # Name of the test.
    test: str
    file: str

    @property
    def corpus(self):
        """Directory of the corpus."""
        return pathlib.Path("crates", self.crate, "tests/corpus", self.name.removeprefix(f"{self.crate}-"))


def test_of(path, text, match):
    """The binary and the name of a test in a file: crates/x/src/a/b.rs is the module a::b."""
    if path.parts[2] == "tests":
        return ("--test", path.stem), match[1]
    module = path.with_suffix("").parts[3:]
    # A module within the file.
    if "\nmod tests {" in text[: match.start()]:
        module += ("tests",)
    return ("--lib",), "::".join((*module, match[1]))


def find():
    """Returns the targets, and the names of the planted faults."""
    targets, planted = [], set()
    for place in PLACES:
        for path in sorted(pathlib.Path().glob(place)):
            text = path.read_text(encoding="utf-8")
            if path == FUZZER or not USES.search(text):
                continue
            planted.update(PLANTED.findall(text))
            for match in TEST.finditer(text):
                targets.append(Target(match[2], path.parts[1], *test_of(path, text, match), str(path)))
    return targets, planted
