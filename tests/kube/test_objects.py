"""Objects of an API server, parsed on the event loop."""

import time

import pytest

from agent.kube.objects import LONGEST_BYTES, changed, listed

DENSE = {
    "empty objects": b'{"items":[' + b",".join([b"{}"] * 1_000_000) + b"]}",
    "annotations": b'{"items":[{"metadata":{"annotations":{' + b",".join(b'"%d":""' % one for one in range(250_000)) + b"}}}]}",
    "depth": b"[" * 2_000_000,
    "one text": b'{"items":[{"metadata":{"uid":"' + b"x" * 3_000_000 + b'"}}]}',
    "what is skipped": b'{"x":[' + b",".join([b"1"] * 1_400_000) + b"]}",
}


@pytest.mark.parametrize("kind", DENSE)
def test_no_body_holds_the_loop_for_50_ms(kind: str) -> None:
    body = DENSE[kind]
    assert len(body) < LONGEST_BYTES * 1.2
    took = []
    for _ in range(3):
        began = time.thread_time()
        listed(body)
        changed(b'{"type":"ADDED","object":' + body + b"}")
        took.append(time.thread_time() - began)
    assert min(took) < 0.1, "for two"


def test_a_long_object_of_few_values_is_read() -> None:
    fields = b",".join(b'"f:%d":{}' % one for one in range(5000))
    body = b'{"metadata":{"uid":"u","annotations":{"a":"%s"},"managedFields":[{"fieldsV1":{%s}}]}}' % (b"x" * 250_000, fields)
    assert changed(b'{"type":"ADDED","object":%s}' % body) == (
        "added",
        {"metadata": {"uid": "u", "annotations": {"a": "x" * 250_000}}},
    )
