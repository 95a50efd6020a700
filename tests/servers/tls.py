"""Certificates for local servers."""

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    """The server's context with a certificate that signs itself for this host name or address, and the PEM file that vouches for it."""
    try:
        alternative: x509.GeneralName = x509.IPAddress(ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, _key().public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(_key(), hashes.SHA256())
    )
    pem, key = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        _key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    return context, str(pem)
