"""Configurations for these tests, and what is said of them."""

from pathlib import Path

from agent.config import loading
from agent.config.fault import Fault

GOOD = """\
refresh:
  at: 0.8
control:
  socket: run/agent.sock
admin:
  listen: ["127.0.0.1:9480"]
metadata:
  listen: ["127.0.0.1:9481"]
issuer:
  url: https://issuer.example
  listen: ["127.0.0.1:9482"]
  state: run/issuer
identities:
  - name: one
    source:
      type: issuer
      subject: system:one
      lifetime: 1h
    provider:
      type: generic
      audiences: [demo]
    sinks:
      - type: files
        directory: run/one
  - name: two
    source:
      type: file
      path: /tokens/two
    provider:
      type: aws
      roleArn: arn:aws:iam::123456789012:role/two
      region: eu-west-1
    serve:
      dialects: [container]
"""


def verdict(folder: Path, text: str, environ: dict[str, str] | None = None) -> loading.Verdict:
    path = folder / "config.yaml"
    path.write_text(text)
    return loading.check(path, environ or {})


def told(faults: list[Fault]) -> str:
    return "\n".join(loading.render(Path("F"), fault) for fault in faults)


def marked(text: str) -> int:
    """The line that ends in `# HERE`."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# HERE"))
