import pytest

from tests.config.writing import GOOD, marked, told, verdict

STRUCTURE = [
    # what is written, instead of what, where it is said to be wrong, and what is said
    ("  at: 1.5 # HERE", "  at: 0.8", "refresh.at", "more than 0 and less than 1"),
    ("  at: .nan # HERE", "  at: 0.8", "refresh.at", "the number is not finite"),
    ("  at: '0.8' # HERE", "  at: 0.8", "refresh.at", "text: write a number"),
    ("  concurrency: 4.0 # HERE", "  at: 0.8", "refresh.concurrency", "a number: write a whole number"),
    ("  concurrency: 99999999999999999999999 # HERE", "  at: 0.8", "refresh.concurrency", "too large"),
    ("  jiter: 0.1 # HERE", "  at: 0.8", "refresh.jiter", "unknown key, did you mean `jitter`?"),
    ("  zzz: 0.1 # HERE", "  at: 0.8", "refresh.zzz", "allowed are at, jitter, maxAge"),
    ("  max_age: 1h # HERE", "  at: 0.8", "refresh.max_age", "did you mean `maxAge`?"),
    ("  timeout: 10 # HERE", "  at: 0.8", "refresh.timeout", "a unit is missing: write 10s, 10m, 10h or 10d"),
    ("  timeout: 1h30m # HERE", "  at: 0.8", "refresh.timeout", "'1h30m' is not a duration: write a number and a unit"),
    ("  timeout: # HERE", "  at: 0.8", "refresh.timeout", "the value is missing: write a number and a unit"),
    ("  timeout: yes # HERE", "  at: 0.8", "refresh.timeout", "YAML reads an unquoted yes as true or false"),
    ("  socket: no # HERE", "  socket: run/agent.sock", "control.socket", "YAML reads an unquoted no as true or false: write it in quotes"),
    ("  socket: 7 # HERE", "  socket: run/agent.sock", "control.socket", "a number: write it in quotes"),
    ('admin:\n  listen: ":9480" # HERE', 'admin:\n  listen: ["127.0.0.1:9480"]', "admin.listen", "text: write a list, such as [a, b]"),
    ('admin:\n  listen: [":99999"] # HERE', 'admin:\n  listen: ["127.0.0.1:9480"]', "admin.listen[0]", "a port is at most 65535"),
    ("admin:\n  listen: [nowhere] # HERE", 'admin:\n  listen: ["127.0.0.1:9480"]', "admin.listen[0]", "host:port, [v6]:port"),
    ("admin: 5 # HERE", 'admin:\n  listen: ["127.0.0.1:9480"]', "admin", "a number: write a block of keys and values"),
    ("  algorithm: RS265 # HERE", "  state: run/issuer", "issuer.algorithm", "did you mean RS256?"),
    ("  url: ftp://x # HERE", "  url: https://issuer.example", "issuer.url", "write an http:// or https:// URL"),
    ("issuer: # HERE", "issuer:\n  url: https://issuer.example", "issuer.url", "missing: write an http:// or https:// URL"),
    ("  - name: One # HERE", "  - name: one", "identities[0].name", "lower-case letters, digits"),
    ("  - required: yes # HERE", "  - name: one", "identities[0].name", "missing: write lower-case"),
    ('  - name: "one\\n" # HERE', "  - name: one", "identities[0].name", "a line break or control character"),
    ("      type: isuer # HERE", "      type: issuer", "identities[0].source.type", "'isuer' is not known here, did you mean issuer?"),
    ("      type: vault # HERE", "      type: issuer", "identities[0].source.type", "allowed are issuer, file"),
    ("      type: 5 # HERE", "      type: issuer", "identities[0].source.type", "write one of issuer, file"),
    ("      subject: system:one\n      subject: x # HERE", "      subject: system:one", "identities[0].source.subject", "given twice"),
    ("    source: # HERE", "    source:\n      type: issuer", "identities[0].source.type", "missing: write one of issuer, file"),
    (
        "    source: file # HERE",
        "    source:\n      type: file\n      path: /tokens/two",
        "identities[1].source",
        "text: write a block of keys and values, with type",
    ),
    (
        "    sinks: {type: files, directory: run/one} # HERE",
        "    sinks:\n      - type: files\n        directory: run/one",
        "identities[0].sinks",
        "a block of keys and values: write a list of blocks, each of which begins with `- `",
    ),
    (
        "    source: {type: kubernetes, serviceAccount: two} # HERE",
        "    source:\n      type: file\n      path: /tokens/two",
        "identities[1].source.serviceAccount",
        "text: write a block of keys and values, with namespace",
    ),
    (
        "    source: # HERE\n    provider:\n      type: aws\n",
        "    source:\n      type: file\n      path: /tokens/two\n    provider:\n      type: aws\n",
        "identities[1].source",
        "the value is missing: write a block of keys and values, with type, below this line and indented further",
    ),
    (
        "      serve: {dialects: []} # HERE",
        "      subject: system:one",
        "identities[0].source.serve",
        "belongs to the identity, beside its name, so",
    ),
    ("  metadata: {} # HERE", "  at: 0.8", "refresh.metadata", "unknown key: it belongs to the top of the file, so indent it less"),
    (
        "    issuer: {} # HERE",
        "    provider:\n      type: generic\n      audiences: [demo]",
        "identities[0].issuer",
        "to the top of the file",
    ),
    ("      subject: '' # HERE", "      subject: system:one", "identities[0].source.subject", "empty: write some text"),
    ("      subject: jürgen # HERE", "      subject: system:one", "identities[0].source.subject", "printable ASCII"),
    ("      lifetime: 60 # HERE", "      lifetime: 1h", "identities[0].source.lifetime", "write 60s, 60m, 60h or 60d"),
    ("      claims: [a] # HERE", "      lifetime: 1h", "identities[0].source.claims", "a list: write a block of keys"),
    ("      audiences: demo # HERE", "      audiences: [demo]", "identities[0].provider.audiences", "write a list"),
    ("      audiences: [5] # HERE", "      audiences: [demo]", "identities[0].provider.audiences[0]", "in quotes"),
    (
        "        mode: 0640 # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].mode",
        'write "0640" in quotes',
    ),
    (
        "        mode: 640 # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].mode",
        'write "640" in quotes',
    ),
    (
        '        mode: "4755" # HERE\n        directory: run/one',
        "        directory: run/one",
        "identities[0].sinks[0].mode",
        "without setuid",
    ),
    (
        '        adopt: "no" # HERE\n        directory: run/one',
        "        directory: run/one",
        "identities[0].sinks[0].adopt",
        "without quotes",
    ),
    ("        owner: 1.5 # HERE\n        directory: run/one", "        directory: run/one", "identities[0].sinks[0].owner", "a number"),
    ("      - type: file # HERE", "      - type: files", "identities[0].sinks[0].type", "did you mean files?"),
    ("      -", "      - type: files", "identities[0].sinks[0].type", "missing: write one of files"),
    (
        "      roleArn: arn:aws:iam::1:role/x # HERE",
        "      roleArn: arn:aws:iam::123456789012:role/two",
        "identities[1].provider.roleArn",
        "IAM role",
    ),
    ("      dialects: [contaner] # HERE", "      dialects: [container]", "identities[1].serve.dialects[0]", "did you mean container?"),
    ("identites: # HERE", "identities:", "identites", "did you mean `identities`?"),
    ("true: x # HERE\ncontrol:", "control:", "", "a key must be text: put it in quotes"),
    ("  at: !!python/name:os.system x # HERE", "  at: 0.8", "refresh.at", "is not supported"),
]
RULES = [
    ("  ledger: '' # HERE", "  socket: run/agent.sock", "control.ledger", "needs a file of its own"),
    ("  ledger: /run/wi-agent/agent.sock # HERE", "  socket: run/agent.sock", "control.ledger", "needs a file of its own"),
    ("  ledger: /proc/version/x # HERE", "  socket: run/agent.sock", "control.ledger", "/proc/version exists and cannot hold the ledger"),
    ("  ledger: /proc # HERE", "  socket: run/agent.sock", "control.ledger", "/proc exists and cannot hold the ledger"),
    ("  jitter: 0.5 # HERE\n  at: 0.5", "  at: 0.8", "refresh.jitter", "must be less than at"),
    ("  backoff: {initial: 2m} # HERE", "  at: 0.8", "refresh.backoff", "initial (2m) must not be longer than max (1m)"),
    ("  timeout: 0s # HERE", "  at: 0.8", "refresh.timeout", "must be at least 1s"),
    ("  backoff: {initial: 0s} # HERE", "  at: 0.8", "refresh.backoff.initial", "must be at least 1s"),
    (f"  socket: {'x' * 120} # HERE", "  socket: run/agent.sock", "control.socket", "at most 107 bytes"),
    (
        '  listen: ["127.0.0.1:9480", ":9482"]',
        '  listen: ["127.0.0.1:9480"]',
        "",
        "issuer.listen[0]: the agent already listens on 127.0.0.1:9482",
    ),
    ('  listen: ["localhost:9480"] # HERE', '  listen: ["127.0.0.1:9481"]', "metadata.listen[0]", "(admin.listen[0] in line 6)"),
    ('  listen: ["10.0.0.1:9481"] # HERE', '  listen: ["127.0.0.1:9481"]', "metadata.listen[0]", "allowNonLoopback: true"),
    ('  listen: [":9481"] # HERE', '  listen: ["127.0.0.1:9481"]', "metadata.listen[0]", "other machines can reach"),
    ("  listen: []", '  listen: ["127.0.0.1:9481"]', "", "the agent cannot serve it, as metadata.listen is empty"),
    ("  url: https://issuer.example/ # HERE", "  url: https://issuer.example", "issuer.url", "must not end with `/`"),
    ("  url: https://user:canary@issuer.example # HERE", "  url: https://issuer.example", "issuer.url", "must not hold a user"),
    ("  lifetime: {max: 99999999d} # HERE\n  state: run/issuer", "  state: run/issuer", "issuer.lifetime.max", "must be at most 3650d"),
    ("  rotation: {every: 99999999d} # HERE\n  state: run/issuer", "  state: run/issuer", "issuer.rotation.every", "at most 3650d"),
    ("  lifetime: {min: 2h, max: 1h} # HERE\n  state: run/issuer", "  state: run/issuer", "issuer.lifetime", "must not be longer than max"),
    ("  rotation: {every: 1d} # HERE\n  state: run/issuer", "  state: run/issuer", "issuer.rotation", "shorter than every"),
    ("      lifetime: 5s # HERE", "      lifetime: 1h", "identities[0].source.lifetime", "write 10s to 2d"),
    ("      lifetime: 30d # HERE", "      lifetime: 1h", "identities[0].source.lifetime", "write 10s to 2d"),
    ("      claims: {sub: root} # HERE", "      lifetime: 1h", "identities[0].source.claims.sub", "the agent sets this claim itself"),
    ("      claims: {kubernetes.io: x} # HERE", "      lifetime: 1h", "identities[0].source.claims.kubernetes.io", "reserved are aud"),
    ("      audiences: [] # HERE", "      audiences: [demo]", "identities[0].provider.audiences", "name at least one audience"),
    ("      audiences: [grün] # HERE", "      audiences: [demo]", "identities[0].provider.audiences[0]", "printable ASCII"),
    (
        "      duration: 13h # HERE\n      region: eu-west-1",
        "      region: eu-west-1",
        "identities[1].provider.duration",
        "AWS allows 15m to 12h",
    ),
    (
        "      chain:\n        - roleArn: arn:aws:iam::123456789012:role/x\n          transitiveTags: [a] # HERE\n      region: eu-west-1",
        "      region: eu-west-1",
        "identities[1].provider.chain[0].transitiveTags",
        "not among the session tags",
    ),
    ("        directory: run/issuer/keys # HERE", "        directory: run/one", "identities[0].sinks[0].directory", "inside another's"),
    ("        directory: run # HERE", "        directory: run/one", "identities[0].sinks[0].directory", "holds another's"),
    (
        "        directory: run/..data/x # HERE",
        "        directory: run/one",
        "identities[0].sinks[0].directory",
        "an atomic writer replaces",
    ),
    ("        directory: /dev/null # HERE", "        directory: run/one", "identities[0].sinks[0].directory", "is not a directory"),
    ("        directory: /dev/null/x # HERE", "        directory: run/one", "identities[0].sinks[0].directory", "is not a directory"),
    ("        directory: '' # HERE", "        directory: run/one", "identities[0].sinks[0].directory", "empty: write a path"),
    (
        "        mountPath: x # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].mountPath",
        "absolute",
    ),
    (
        "        owner: nobody-at-all # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].owner",
        "does not know that owner",
    ),
    (
        "        group: '1000' # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].group",
        "without quotes",
    ),
    ("        owner: -1 # HERE\n        directory: run/one", "        directory: run/one", "identities[0].sinks[0].owner", "from 0 to"),
    (
        "        names: {tokn: x} # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].names.tokn",
        "`token`",
    ),
    (
        "        names: {token: a/b} # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].names.token",
        "without `/`",
    ),
    (
        "        names: {token: ..data} # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].names.token",
        "not beginning with `..`",
    ),
    (
        "        names: {token: config} # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].names.token",
        "already",
    ),
    (
        "        names: {token: grant.json} # HERE\n        directory: run/one",
        "        directory: run/one",
        "identities[0].sinks[0].names.token",
        "grant",
    ),
    (
        "  - name: one # HERE",
        "  - name: two",
        "identities[1].name",
        "another identity has this name: give each identity its own (identities[0].name in line 14)",
    ),
    ("      exchange: false\n      region: eu-west-1", "      region: eu-west-1", "identities[1].serve.dialects[0]", "exchange: true"),
    (
        "      authorization: ${NOT_SET} # HERE\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "NOT_SET is empty or not set",
    ),
    (
        "      authorization: canary # HERE\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "at least 16",
    ),
    (
        "      authorization: ${SHORT} # HERE\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "at least 16",
    ),
    (
        "      authorization: ${LINES} # HERE\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "line breaks",
    ),
    (
        "      authorization: x${SHORT} # HERE\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "the whole",
    ),
]
ENVIRON = {"SHORT": "canary", "LINES": "canary canary canary\nX: y"}


@pytest.mark.parametrize(("new", "old", "path", "says"), STRUCTURE + RULES, ids=[f"{row[2]} {row[3]}"[:60] for row in STRUCTURE + RULES])
def test_a_single_error_names_its_line_and_the_allowed_values(tmp_path, monkeypatch, new, old, path, says):
    monkeypatch.chdir(tmp_path)
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    found = verdict(tmp_path, text, ENVIRON)
    assert found.config is None
    lines = told(found.faults)
    assert says in lines
    assert "canary" not in lines
    assert "is not valid under any" not in lines
    if path:
        said = next(fault for fault in found.faults if fault.path == path and says in told([fault]))
        assert "# HERE" not in new or said.line == marked(text)


@pytest.mark.parametrize(("new", "old", "path", "says"), RULES, ids=[f"{row[2]} {row[3]}"[:60] for row in RULES])
def test_a_broken_rule_is_the_only_fault(tmp_path, monkeypatch, new, old, path, says):
    monkeypatch.chdir(tmp_path)
    assert len(verdict(tmp_path, GOOD.replace(old, new), ENVIRON).faults) == 1


def test_the_base_configuration_is_good(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = verdict(tmp_path, GOOD)
    assert told(found.faults) == ""
    assert found.config is not None
    assert found.warnings == []


WARNINGS = [
    ("  url: http://issuer.example", "  url: https://issuer.example", "issuer.url", "clouds trust https issuers only"),
    ("    required: true", "    serve:\n      dialects: [container]", "identities[1]", "neither written to files nor served"),
    ('        mode: "0666"\n        directory: run/one', "        directory: run/one", "identities[0].sinks[0].mode", "write the files"),
    (
        "      authorization: 0123456789abcdefX\n      dialects: [container]",
        "      dialects: [container]",
        "identities[1].serve.authorization",
        "${NAME}",
    ),
]


@pytest.mark.parametrize(("new", "old", "path", "says"), WARNINGS)
def test_a_doubtful_setting_is_warned_of_and_accepted(tmp_path, monkeypatch, new, old, path, says):
    monkeypatch.chdir(tmp_path)
    found = verdict(tmp_path, GOOD.replace(old, new))
    assert found.config is not None
    assert [warning.path for warning in found.warnings] == [path]
    assert says in found.warnings[0].message
