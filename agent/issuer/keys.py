"""One key of the embedded issuer: made, read, named and put to use.

PyJWT and cryptography are imported on first use: 8 MiB that only a process with an issuer of its own pays.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Algorithm = Literal["RS256", "ES256"]

RSA_BITS = 2048
"""What every cloud takes; twice as long makes tokens of 700 bytes for no verifier's benefit within a key's 30 days."""


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A private key, and what everybody may know of it."""

    kid: str
    """base64url(sha256(PKIX DER of the public key)) without padding, as Kubernetes and Gardener name theirs."""
    algorithm: Algorithm
    jwk: Mapping[str, str]
    """The public half (RFC 7517): kty, alg, use, kid and the numbers; nothing private."""
    private: Any
    """cryptography's RSAPrivateKey or EllipticCurvePrivateKey."""

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A JWT with the header alg, kid, typ. Raises TypeError where a claim is not JSON."""
        import jwt  # noqa: PLC0415  # 8 MiB with cryptography

        return jwt.encode(dict(claims), self.private, algorithm=self.algorithm, headers={"kid": self.kid})

    def __repr__(self) -> str:
        return f"SigningKey({self.kid})"


def generate(algorithm: Algorithm) -> tuple[SigningKey, bytes]:
    """A new key, and its PEM (PKCS #8, not encrypted: a process that reads the directory could read the passphrase too)."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # 8 MiB
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415

    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm == "RS256":
        private = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    else:
        private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _key(private), pem


def parse(pem: bytes) -> SigningKey:
    """The key in this PEM. Raises ValueError where it is none that can sign, with nothing of it in the text."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  # 8 MiB
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("not an unencrypted private key in PEM form") from None
    return _key(private)


def _key(private: Any) -> SigningKey:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # 8 MiB
    from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: PLC0415

    numbers: dict[str, str]
    if isinstance(private, rsa.RSAPrivateKey) and private.key_size >= RSA_BITS:
        algorithm: Algorithm = "RS256"
        modulus = private.public_key().public_numbers()
        numbers = {"kty": "RSA", "n": _number(modulus.n), "e": _number(modulus.e)}
    elif isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1):
        algorithm = "ES256"
        point = private.public_key().public_numbers()
        numbers = {"kty": "EC", "crv": "P-256", "x": _number(point.x, 32), "y": _number(point.y, 32)}
    else:
        raise ValueError(f"neither an RSA key of at least {RSA_BITS} bits nor one on the curve P-256")
    der = private.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    kid = _base64url(hashlib.sha256(der).digest())
    return SigningKey(kid, algorithm, {**numbers, "alg": algorithm, "use": "sig", "kid": kid}, private)


def _number(value: int, length: int = 0) -> str:
    """A big-endian integer (RFC 7518, section 6): as short as it goes, or as long as the curve wants."""
    return _base64url(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
