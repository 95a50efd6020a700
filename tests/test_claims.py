"""What is read of a token, and what is refused as none."""

import json
from base64 import urlsafe_b64encode
from datetime import timedelta

import pytest

from agent.claims import MAX_TOKEN_BYTES, read_token
from agent.errors import Rejected
from tests.fakes import START

NOW = int(START.timestamp())
CANARY = "canary-5c1d"


def part(value):
    return urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode().rstrip("=")


def jwt(*, header=None, signature="c2ln", payload=None, **claims):
    return f"{part(header or {'alg': 'RS256'})}.{part(claims if payload is None else payload)}.{signature}"


def read(text, **more):
    return read_token(text, whose="demo", now=START, **more)


def at(seconds):
    return START + timedelta(seconds=seconds)


def test_the_tokens_own_times_count():
    token = read(jwt(iss="https://i", sub="s", aud=["a", "b"], iat=NOW - 60, exp=NOW + 3540, jti="j"))
    assert (token.issued_at, token.expires_at) == (at(-60), at(3540))
    assert (token.issuer, token.subject, token.audiences, token.id) == ("https://i", "s", ("a", "b"), "j")


@pytest.mark.parametrize(
    ("exp", "warn_after", "given", "expected"),
    [
        (3600, None, None, 3600),
        (31536000, 3607, None, 3607),
        (3600, 7200, None, 3600),
        (31536000, 3607, 600, 600),
        (3600, None, 7200, 3600),
        (None, None, 600, 600),
        (None, 3607, None, 3607),
        (3600.5, None, None, 3600.5),
    ],
)
def test_the_earliest_of_exp_warnafter_and_what_the_giver_said_is_the_expiry(exp, warn_after, given, expected):
    claims = {"exp": NOW + exp} if exp else {}
    if warn_after:
        claims["kubernetes.io"] = {"warnafter": NOW + warn_after}
    token = read(jwt(iat=NOW, **claims), given_expiry=at(given) if given else None)
    assert token.expires_at == at(expected)


def test_without_iat_a_token_counts_from_when_it_was_received():
    assert read(jwt(exp=NOW + 60)).issued_at == START


@pytest.mark.parametrize("audience", ["one", ["one"], ["one", 5, "", None]])
def test_an_audience_may_be_one_or_several(audience):
    assert read(jwt(exp=NOW + 60, aud=audience)).audiences == ("one",)


@pytest.mark.parametrize("audience", [None, 5, {"a": 1}, []])
def test_an_audience_that_is_none_is_none(audience):
    assert read(jwt(exp=NOW + 60, aud=audience)).audiences == ()


@pytest.mark.parametrize("exp", [None, "soon", True, [], {}, float("nan"), float("inf"), -1, 10**12, 10**400, 1e300])
def test_a_token_without_an_expiry_that_can_be_reckoned_with_is_refused(exp):
    with pytest.raises(Rejected, match="has no expiry"):
        read(jwt(exp=exp))


def test_an_expiry_of_five_thousand_digits_is_no_expiry():
    with pytest.raises(Rejected, match="has no expiry"):
        read(jwt(payload=b'{"exp":' + b"1" * 5000 + b"}"))


@pytest.mark.parametrize("private", [None, "x", [], {"warnafter": "x"}, {"warnafter": True}])
def test_odd_private_claims_are_passed_over(private):
    assert read(jwt(exp=NOW + 60, **{"kubernetes.io": private})).expires_at == at(60)


@pytest.mark.parametrize(
    "text",
    [
        "",
        CANARY,
        f"{CANARY}.{CANARY}",
        f"{CANARY}.{CANARY}.{CANARY}",
        jwt(exp=NOW + 60) + ".more",
        jwt(exp=NOW + 60, signature=""),
        jwt(exp=NOW + 60) + "\r\nX-Evil: 1",
        jwt(exp=NOW + 60) + "\n",
        jwt(exp=NOW + 60).replace(".", ". ", 1),
        jwt(exp=NOW + 60) + "é",
        jwt(payload=b"[]"),
        jwt(payload=b"\xff\xfe"),
        jwt(payload=b"{"),
        jwt(payload=b"[" * 20000),
        jwt(header=["RS256"], exp=NOW + 60),
        "a.b.c",
        jwt(exp=NOW + 60, pad="x" * MAX_TOKEN_BYTES),
    ],
)
def test_what_is_no_jwt_is_refused_without_being_repeated(text):
    with pytest.raises(Rejected, match="demo: not a JWT") as caught:
        read(text)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_tokens_text_is_not_in_its_repr():
    text = jwt(exp=NOW + 60, signature=CANARY)
    token = read(text)
    assert token.value.reveal() == text
    assert CANARY not in repr(token)
