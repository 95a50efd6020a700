"""One parser under atheris, in a process of its own: libFuzzer ends the process when its time is up.

`python -m tests.fuzz.coverage_guided NAME FOLDER SECONDS`; FOLDER/findings
and FOLDER/tried are what it leaves.
"""

import hashlib
import importlib
import sys
from pathlib import Path

import atheris

INSTRUMENTED = ("agent", "yaml", "botocore.parsers", "jsonschema")
LAZY = ("agent.config.explain", "botocore.parsers", "yaml")
"""Loaded only once they are needed, which is too late to be instrumented."""

with atheris.instrument_imports(include=list(INSTRUMENTED)):
    for module in LAZY:
        importlib.import_module(module)
    from tests.fuzz.parsers import finding, parsers

LONGEST = 64 * 1024
SLOWEST_SECONDS = 10
LONGEST_WORD = 64


def main(name: str, folder: Path, seconds: str) -> None:
    findings, corpus, words = folder / "findings", folder / "corpus", folder / "words"
    tried = 0
    seen = set()
    with parsers(folder) as made:
        parser = next(parser for parser in made if parser.name == name)
        for number, seed in enumerate(parser.seeds):
            (corpus / str(number)).write_bytes(seed)
        short = [word for word in parser.words if 0 < len(word) <= LONGEST_WORD]
        words.write_text("".join('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word)) for word in short))

        def try_one(data: bytes) -> None:
            nonlocal tried
            tried += 1
            if tried % 1000 == 0:
                (folder / "tried").write_text(str(tried))
            found = finding(parser, data)
            if found and found not in seen:
                seen.add(found)
                (findings / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

        options = [
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST_SECONDS}",
            "-rss_limit_mb=1500",
            "-len_control=20",
        ]
        options += [f"-artifact_prefix={findings}/", "-verbosity=0", *([f"-dict={words}"] if short else []), str(corpus)]
        atheris.Setup([sys.argv[0], *options], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
