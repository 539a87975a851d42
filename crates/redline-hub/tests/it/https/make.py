#!/usr/bin/env python3
"""Writes authority.pem, server.pem and server.key: a certificate for 127.0.0.1 that its authority has signed, valid for a century.

Run it with a Python that has `cryptography`: `python make.py`.
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BEGIN = datetime.datetime(2026, 1, 1)
END = datetime.datetime(2126, 1, 1)


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def builder(subject, issuer, key):
    certificate = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer))
    certificate = certificate.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return certificate.not_valid_before(BEGIN).not_valid_after(END)


def main():
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = (
        builder("Redline test authority", "Redline test authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        builder("Redline test server", "Redline test authority", server_key)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder = Path(__file__).parent
    folder.joinpath("authority.pem").write_bytes(authority.public_bytes(pem))
    folder.joinpath("server.pem").write_bytes(server.public_bytes(pem))
    folder.joinpath("server.key").write_bytes(key)


main()
