from pathlib import Path

import pytest

from agent.config import loading
from agent.errors import ConfigError
from tests.config.writing import GOOD, verdict
from tests.processor import own_time

WRONG = """\
refresh: {jiter: 0.1, timeout: 10}          # an unknown key, and no unit
shutdown: {delay: soon}
control: {socket: no}
admin:
  listen: "127.0.0.1:9480"
metadata:
  listen:
    - 10.1.2.3:9481
    - 127.0.0.1:99999
issuer:
  url: https://user:canary@issuer.example/
  listen: []
  algorithm: RS265
  lifetime: {min: 1m, max: 12h}
identities:
  - name: Upper
    source: {type: isuer, subject: x}
    provider: {audiences: [a]}
  - 5
  - name: one
    source: {type: file, path: /tokens/one}
    provider: {type: generic, audiences: []}
    sinks:
      - {type: files, directory: run/shared, mode: 0640}
      - {type: files, directory: run/shared/inner}
      - {type: files, directory: /dev/null}
      - directory: run/elsewhere
  - name: one
    source: {type: issuer, subject: two, lifetime: 5s, claims: {sub: root}}
    provider: {type: aws, roleArn: "arn:aws:iam::123456789012:role/x"}
  - name: three
    source: {type: issuer, subject: three, lifetime: 48h}
    provider: {type: generic, audiences: [x], audiences: [y]}
    serve: {dialects: [container, contaner], authorization: "${CANARY}"}
    sinks:
      - {type: files, directory: run/shared, names: {token: a/b, tokn: c}, owner: nobody-at-all}
"""
SAID = """\
F:1: refresh.jiter: unknown key, did you mean `jitter`?
F:1: refresh.timeout: a unit is missing: write 10s, 10m, 10h or 10d
F:2: shutdown.delay: 'soon' is not a duration: write a number and a unit, such as 10s, 5m, 1h or 30d
F:3: control.socket: YAML reads an unquoted no as true or false: write it in quotes if it is meant as text
F:5: admin.listen: text: write a list, such as [a, b]
F:8: metadata.listen[0]: other machines can reach 10.1.2.3:9481: use 127.0.0.1, [::1] or unix:, or set allowNonLoopback: true
F:9: metadata.listen[1]: '127.0.0.1:99999' is not a listen address: a port is at most 65535
F:10: issuer.state: missing, and without a default: add it
F:11: issuer.url: must not end with `/`: verifiers append the path of the discovery document to it
F:11: issuer.url: must not hold a user or password: every token repeats it
F:13: issuer.algorithm: 'RS265' is not known here, did you mean RS256?
F:16: identities[0].name: 'Upper' cannot be used: write lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit
F:17: identities[0].source.type: 'isuer' is not known here, did you mean issuer?
F:18: identities[0].provider.type: missing: write one of generic, aws, azure, gcp, alibaba
F:19: identities[1]: a number: write a block of keys and values, with name, source, provider
F:22: identities[2].provider.audiences: empty: name at least one audience that the token is for
F:24: identities[2].sinks[0].mode: not quoted, and YAML reads it as the number 416: write "0640" in quotes
F:25: identities[2].sinks[1].directory: is inside another's directory: give each its own, side by side (identities[2].sinks[0].directory in line 24)
F:26: identities[2].sinks[2].directory: /dev/null exists and is not a directory: choose another, or move it away
F:27: identities[2].sinks[3].type: missing: write one of files
F:28: identities[3].name: another identity has this name: give each identity its own (identities[2].name in line 20)
F:29: identities[3].source.claims.sub: the agent sets this claim itself: remove it; reserved are aud, exp, iat, iss, jti, kubernetes.io, nbf, sub
F:29: identities[3].source.lifetime: the issuer does not grant 5s: write 1m to 12h, or change issuer.lifetime
F:30: identities[3].provider.region: missing: write a region such as eu-west-1
F:32: identities[4].source.lifetime: the issuer does not grant 2d: write 1m to 12h, or change issuer.lifetime
F:33: identities[4].provider.audiences: given twice, first in line 33: keep one
F:34: identities[4].serve.authorization: the environment variable CANARY is empty or not set: set it
F:34: identities[4].serve.dialects[0]: container serves AWS sessions: it needs provider type aws with exchange: true
F:34: identities[4].serve.dialects[1]: 'contaner' is not known here, did you mean container?
F:36: identities[4].sinks[0].directory: is another's directory: give each its own, side by side (identities[2].sinks[0].directory in line 24)
F:36: identities[4].sinks[0].names.token: not a plain file name: write one without `/`, not beginning with `..`, of at most 255 bytes
F:36: identities[4].sinks[0].names.tokn: the agent does not write a file of that name, did you mean `token`?
F:36: identities[4].sinks[0].owner: this machine does not know that owner: write its number, if only other machines know the name
"""  # noqa: E501  # a line is a line


def test_all_of_twenty_errors_are_reported_with_their_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("F").write_text(WRONG)
    with pytest.raises(ConfigError) as caught:
        loading.load(Path("F"), {})
    assert str(caught.value).splitlines() == SAID.splitlines()
    assert len(SAID.splitlines()) >= 20


def test_rules_conclude_nothing_from_broken_parts(tmp_path):
    text = """\
isuer: {url: "https://issuer.example", listen: [], state: run/issuer}
identities:
  - name: one
    source: {type: issuer, subject: x}
    provider: {type: generic, audiences: [a]}
    sinks: nowhere
"""
    found = verdict(tmp_path, text)
    assert [(fault.line, fault.path) for fault in found.faults] == [(1, "isuer"), (6, "identities[0].sinks")]
    assert found.warnings == []


def test_a_rule_names_the_original_place_behind_broken_parts(tmp_path):
    text = """\
identities:
  - 1
  - name: one
    source: {type: file, path: x}
    provider: {type: generic, audiences: [5, a, ä]}
    sinks: [{type: files, directory: 7}, {type: files, directory: a, names: {token: a/b}}]
  - 2
  - name: one
    source: {type: file, path: x}
    provider: {type: generic, audiences: [b]}
"""
    paths = [(fault.line, fault.path) for fault in verdict(tmp_path, text).faults]
    assert paths == [
        (2, "identities[0]"),
        (5, "identities[1].provider.audiences[0]"),
        (5, "identities[1].provider.audiences[2]"),
        (6, "identities[1].sinks[0].directory"),
        (6, "identities[1].sinks[1].names.token"),
        (7, "identities[2]"),
        (8, "identities[3].name"),
    ]


def test_rules_check_the_rest_of_a_file_with_a_key_that_is_not_text(tmp_path):
    text = GOOD.replace("control:", "1: x\ncontrol:").replace("  - name: two", "  - name: one")
    assert [fault.path for fault in verdict(tmp_path, text).faults] == ["", "identities[1].name"]


def test_thousands_of_errors_are_reported_in_seconds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = (
        f"  - {{name: n{n}, provider: {{type: generic, audiences: [a], zork: 1}}, sinks: [{{type: files, directory: run/{n}}}]}}"
        for n in range(500)
    )
    began = own_time()
    found = verdict(tmp_path, "\n".join(["identities:", *rows]))
    lines = loading.told(Path("F"), found.faults)
    assert len(lines) == 100
    assert lines[0].startswith("F:2: identities[0]")
    assert lines[-1] == "F: there are more errors: correct these first"
    assert own_time() - began < 5


def test_a_misspelt_required_key_is_not_reported_as_missing(tmp_path):
    text = GOOD.replace("    provider:\n      type: generic", "    provder:\n      type: generic").replace("      path:", "      Path:")
    found = [(fault.path, fault.message) for fault in verdict(tmp_path, text).faults]
    assert found == [
        ("identities[0].provder", "unknown key, did you mean `provider`?"),
        ("identities[1].source.Path", "unknown key, did you mean `path`?"),
    ]
