"""Settings that are written as one string."""

import msgspec
import pytest

from agent.settings import Address, Duration, FileMode, Settings, Url, convert, describe_scalar, digest, encode_scalar


class Sample(Settings):
    """One of each."""

    every: Duration = Duration(60)
    mode: FileMode = FileMode(0o640)
    listen: tuple[Address, ...] = ()
    url: Url | None = None


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("10s", 10, "10s"),
        ("5m", 300, "5m"),
        ("1h", 3600, "1h"),
        ("30d", 2592000, "30d"),
        ("0s", 0, "0s"),
        ("90s", 90, "90s"),
        ("60s", 60, "1m"),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, seconds, shown):
    assert Duration.parse(text).seconds == seconds
    assert str(Duration.parse(text)) == shown


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1.5h", "1h30m", "10 s", "1S", "10s\n", "١٠s", "1234567890s", "1w", "1ms"])
def test_what_is_no_duration_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match="write a number and a unit, such as 10s"):
        Duration.parse(text)


@pytest.mark.parametrize(("text", "bits"), [("0640", 0o640), ("640", 0o640), ("0000", 0), ("0777", 0o777)])
def test_a_file_mode_is_octal_text(text, bits):
    assert FileMode.parse(text).bits == bits
    assert str(FileMode.parse(text)) == f"{bits:04o}"


@pytest.mark.parametrize("text", ["", "64", "0x1a0", "0o640", "2750", "04755", "01777", "0680", "rw-r-----", "0640 "])
def test_a_mode_with_special_bits_or_none_at_all_is_refused(text):
    with pytest.raises(ValueError, match="write a quoted octal string"):
        FileMode.parse(text)


def test_a_bare_0640_is_refused_because_yaml_reads_it_as_another_number():
    with pytest.raises(msgspec.ValidationError, match=r"expected text, got int: write a quoted octal string.*\$\.mode"):
        convert({"mode": 0o640}, Sample)


@pytest.mark.parametrize(
    ("text", "host", "port", "path", "loopback"),
    [
        ("127.0.0.1:9481", "127.0.0.1", 9481, "", True),
        ("127.9.9.9:1", "127.9.9.9", 1, "", True),
        ("[::1]:9481", "::1", 9481, "", True),
        ("localhost:0", "localhost", 0, "", True),
        (":9480", "", 9480, "", False),
        ("0.0.0.0:80", "0.0.0.0", 80, "", False),
        ("[::]:80", "::", 80, "", False),
        ("169.254.170.23:80", "169.254.170.23", 80, "", False),
        ("localhost.evil.example:80", "localhost.evil.example", 80, "", False),
        ("unix:/run/a.sock", "", 0, "/run/a.sock", True),
    ],
)
def test_an_address_is_host_and_port_or_a_socket_file(text, host, port, path, loopback):
    address = Address.parse(text)
    assert (address.host, address.port, address.path, address.loopback) == (host, port, path, loopback)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9481", "127.0.0.1", "host:", "::1:80", "host:65536", "host:-1", "unix:", "a b:80", "http://h:80", "h:80/", "[::1%lo]:80"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="is not a listen address"):
        Address.parse(text)


def test_a_url_shows_itself_without_userinfo_everywhere():
    url = Url.parse("https://user:canary@STS.example:8443/a/b")
    assert (url.host, url.hostname, url.scheme) == ("sts.example:8443", "sts.example", "https")
    assert url.shown == "https://STS.example:8443/a/b"
    assert "canary" not in f"{url} {url!r} {[url]}"
    assert url.text == "https://user:canary@STS.example:8443/a/b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://h",
        "https://",
        "https:///path",
        "h",
        "https://h?q=1",
        "https://h#f",
        "https://h/a b",
        "https://h\n",
        "https://h:99999",
        "https://h:port",
        "https://bücher.example",
        "https://good.example\\@evil.example",
        "https://user:canary@",
        "https://a_b%2e.example",
    ],
)
def test_what_is_no_url_is_refused_without_being_repeated(text):
    with pytest.raises(ValueError) as caught:
        Url.parse(text)
    assert "canary" not in str(caught.value)


def test_unknown_keys_are_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `evry`"):
        convert({"evry": "1s"}, Sample)


def test_settings_are_decoded_through_their_scalars():
    sample = convert({"every": "5m", "mode": "0600", "listen": [":80", "unix:/x"], "url": "http://h"}, Sample)
    assert (sample.every.seconds, sample.mode.bits, len(sample.listen), sample.url.host) == (300, 0o600, 2, "h")


def test_a_scalars_schema_and_its_encoding_are_what_it_reads():
    assert describe_scalar(Duration) == {"type": "string", "pattern": Duration.pattern, "description": Duration.allowed}
    assert encode_scalar(Duration(300)) == "5m"
    assert encode_scalar(Url("http://u:p@h")) == "http://u:p@h"
    for call in (describe_scalar, lambda kind: encode_scalar(kind())):
        with pytest.raises(NotImplementedError):
            call(dict)


def test_digests_hold_every_part_with_its_length():
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("a", "b", "c")]
    assert len({digest(*parts) for parts in lists}) == len(lists)


def test_a_default_that_is_written_out_does_not_change_the_digest():
    written = [
        {"every": "60s"},
        {"every": "1m"},
        {"mode": "0640"},
        {"listen": []},
        {"url": None},
        {"every": "60s", "mode": "640", "listen": [], "url": None},
    ]
    assert {digest(convert(one, Sample)) for one in written} == {digest(Sample())}


def test_a_digest_changes_with_every_setting_the_userinfo_included():
    samples = [
        Sample(),
        Sample(every=Duration(61)),
        Sample(mode=FileMode(0o600)),
        Sample(listen=(Address("", 80),)),
        Sample(url=Url("http://u:a@h")),
        Sample(url=Url("http://u:b@h")),
    ]
    assert len({digest(sample) for sample in samples}) == len(samples)
