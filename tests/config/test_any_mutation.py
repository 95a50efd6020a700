from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.config import loading
from agent.errors import ConfigError

EXAMPLE = (Path(__file__).parents[2] / "config.example.yaml").read_text()
WORDS = ["1h", "0640", "..", "/", "a/../..", "type", "issuer", "aws", "http://x:y", "${X}", ":0", "[::]:1", "unix:x", "\0", "\ud800"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=3)
    | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
)


def places(data, place=()):
    yield place
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, below in items:
        yield from places(below, (*place, step))


PLACES = [place for place in places(yaml.safe_load(EXAMPLE)) if place]


def judged(folder, data: bytes):
    path = folder / "config.yaml"
    path.write_bytes(data)
    try:
        found = loading.check(path, {})
        loading.load(path, {})
    except ConfigError:
        return
    assert found.config is not None
    assert found.faults == []


QUIET = settings(
    max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@QUIET
@given(edits=st.lists(st.tuples(st.sampled_from(PLACES), VALUES, st.sampled_from(["set", "delete", "add"])), min_size=1, max_size=4))
def test_no_other_value_anywhere_raises_anything_but_a_refusal(tmp_path, edits):
    data = yaml.safe_load(EXAMPLE)
    for place, value, how in edits:
        around = data
        try:
            for step in place[:-1]:
                around = around[step]
            if how == "delete":
                del around[place[-1]]
            elif how == "add" and isinstance(around, dict):
                around[f"{place[-1]}x"] = value
            else:
                around[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    judged(tmp_path, yaml.dump(data, allow_unicode=True).encode("utf-8", "surrogatepass"))


@QUIET
@given(
    at=st.integers(0, len(EXAMPLE) - 1),
    length=st.integers(0, 30),
    text=st.text(max_size=6) | st.sampled_from(list("{}[]:,&*!|>'\"%@`\t\n#-")),
)
def test_no_other_text_anywhere_raises_anything_but_a_refusal(tmp_path, at, length, text):
    judged(tmp_path, (EXAMPLE[:at] + text + EXAMPLE[at + length :]).encode("utf-8", "surrogatepass"))


@QUIET
@given(data=st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_refusal(tmp_path, data):
    judged(tmp_path, data)
