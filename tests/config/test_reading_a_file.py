import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.config import loading
from agent.errors import ConfigError
from tests.config.writing import GOOD, told, verdict
from tests.processor import own_time

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"
NOT_YAML = [
    ("refresh:\n\tat: 0.8\n", 2, "a tab cannot indent: use spaces"),
    ("refresh:\n  at: 0.8\n jitter: 0.1\n", 3, "check the indentation"),
    ("control: {socket: a\n", 2, "check the indentation, colons and brackets"),
    ("control: socket: a\n", 1, "a colon follows text that cannot be a key"),
    ("a: 1\n---\nb: 1\n", 2, "more than one document"),
    ("control: *nothing\n", 1, "an alias (*name) has no anchor"),
    ("refresh: {}\nrefresh: {}\nidentities: []\n", 2, "refresh: given twice, first in line 1: keep one"),
    ("a: &a [*a]\n", 1, "an alias contains itself"),
    ("[" * 100_000, 1, "nested too deeply"),
    ("a: " + "[" * 70 + "]" * 70, 1, "nested too deeply"),
    ("control: \x00\n", 1, "characters that YAML does not allow"),
    ("just words\n", 1, "text: write a block of keys and values, such as `identities:`"),
    ("- a\n", 1, "a list: write a block of keys and values"),
    ("? [a]\n: b\n", 1, "a key must be text"),
    ("refresh: !!binary aGVsbG8=\n", 1, "is not supported"),
    ("refresh: !secret x\n", 1, "is not supported"),
]


@pytest.mark.parametrize(("text", "line", "says"), NOT_YAML, ids=[row[2] for row in NOT_YAML])
def test_unusable_yaml_is_refused_with_its_line(tmp_path, text, line, says):
    found = verdict(tmp_path, text)
    assert found.config is None
    assert says in told(found.faults)
    assert found.faults[0].line == line


def test_a_few_lines_of_aliases_that_mean_billions_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = own_time()
    found = verdict(tmp_path, "\n".join(lines))
    assert "too large: at most 50000 values" in told(found.faults)
    assert own_time() - began < 2


def test_merge_keys_that_mean_billions_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert "too large" in told(verdict(tmp_path, "\n".join(lines)).faults)


def test_anchors_and_aliases_and_merge_keys_save_repetition(tmp_path):
    text = """\
identities:
  - &one
    name: one
    source: {type: file, path: x}
    provider: &nobody {type: generic, audiences: [a]}
    sinks: [{type: files, directory: run/one}]
  - <<: *one
    name: two
    provider: *nobody
    sinks: [{type: files, directory: run/two}]
"""
    found = verdict(tmp_path, text)
    assert told(found.faults) == ""
    assert [identity.name for identity in found.config.identities] == ["one", "two"]
    assert found.config.identities[1].source.path == "x"


def test_only_an_empty_list_means_no_identities(tmp_path):
    for text in ("identities: []\n", "refresh: {at: 0.5}\nidentities: []\n"):
        found = verdict(tmp_path, text)
        assert found.config is not None
        assert [warning.message for warning in found.warnings] == ["the list is empty, so the agent keeps nothing fresh: add an identity"]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}\n", "refresh: {at: 0.5}\n"])
def test_a_file_without_identities_is_refused_with_a_remedy(tmp_path, text):
    found = verdict(tmp_path, text)
    assert found.config is None
    assert (
        told(found.faults) == "F:1: identities: missing: write a list of identities, or `identities: []` to withdraw all that are running"
    )
    assert not found.warnings


def test_misspelt_identities_are_told_once(tmp_path):
    found = verdict(tmp_path, GOOD.replace("identities:", "identites:"))
    assert told(found.faults) == "F:13: identites: unknown key, did you mean `identities`?"


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD, encoding="utf-8-sig")
    assert loading.load(tmp_path / "config.yaml", {}).identities[0].name == "one"


def test_faults_on_one_line_are_ordered_by_index(tmp_path):
    found = verdict(tmp_path, json.dumps({"identities": [{"name": f"i{number}", "extra": 1} for number in range(11)]}))
    said = [fault.place[1] for fault in found.faults if fault.path.endswith("extra")]
    assert said == sorted(said)
    assert said[1:] == list(range(1, 11))


def test_a_date_is_read_as_text(tmp_path):
    text = GOOD.replace("audiences: [demo]", "audiences: [2026-01-01]")
    assert verdict(tmp_path, text).config.identities[0].provider.audiences == ("2026-01-01",)


def test_a_file_that_cannot_be_read_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "latin").write_bytes(b"a: b\nname: J\xfcrgen\n")
    (tmp_path / "huge").write_bytes(b"#" * (loading.MAX_FILE_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    said = {
        "nothing": "the file does not exist (name the configuration file with -c",
        ".": "a directory, not a file (name the YAML file in it with -c)",
        "pipe": "not a regular file",
        "latin": ":2: not UTF-8 (save the file as UTF-8)",
        "huge": "larger than 1048576 bytes",
        "huge/below": "cannot read the file: Not a directory",
        "nul\0": "not a valid file name",
    }
    for name, message in said.items():
        with pytest.raises(ConfigError) as caught:
            loading.load(tmp_path / name, {})
        assert message in str(caught.value)


def test_an_unreadable_file_is_refused_with_the_uid(tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD)
    (tmp_path / "config.yaml").chmod(0)
    with somebody_else(), pytest.raises(ConfigError, match="let uid"):
        loading.load(tmp_path / "config.yaml", {})


@contextmanager
def somebody_else():
    """Root reads everything, so it becomes somebody who does not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_the_example_is_good_and_keeps_to_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = loading.check(EXAMPLE, {})
    assert told(found.faults) == ""
    assert [warning.path for warning in found.warnings] == ["issuer.url"]
    config = found.config
    assert {address.host for address in (*config.admin.listen, *config.metadata.listen, *config.issuer.listen)} == {"127.0.0.1"}
    assert [identity.source.lifetime.seconds for identity in config.identities] == [60, 3600, 3600, 3600, 3600]
    assert {sink.directory.split("/")[1] for identity in config.identities for sink in identity.sinks} == {"run"}


def test_paths_stay_as_they_are_written(tmp_path):
    config = verdict(tmp_path, GOOD).config
    assert config.identities[0].sinks[0].directory == "run/one"


def test_an_authorization_from_the_environment_is_accepted_and_never_kept(tmp_path):
    text = GOOD.replace("      dialects", "      authorization: ${AUTHORIZATION}\n      dialects")
    found = verdict(tmp_path, text, {"AUTHORIZATION": "0123456789abcdef"})
    assert told(found.faults) == ""
    assert "0123456789abcdef" not in repr(found.config)


def test_a_good_file_does_not_load_the_explanation(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    script = """
import sys, pathlib
from tests.processor import own_time
from agent.config import loading
loading.load(pathlib.Path(sys.argv[1]), {})
print([name for name in ("jsonschema", "jwt", "cryptography", "aiohttp", "botocore", "agent.config.explain") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "good.yaml")], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == "[]\n"
