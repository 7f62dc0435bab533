"""The cluster's own certificate authority and the key of its service account tokens."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Credential:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read; it appears complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.touch(mode=0o600)
    partial.write_bytes(data)
    partial.replace(path)


class Authority:
    """Issues certificates below one folder; what exists already is used again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.own = Credential(folder / "ca.crt", folder / "ca.key")
        if not (self.own.certificate.exists() and self.own.key.exists()):
            key = ec.generate_private_key(ec.SECP256R1())
            name = _name("firsttoken-local", ())
            self._write(self.own, key, self._sign(name, name, key, key, authority=True))

    def service_account_key(self) -> Path:
        """Return the key that signs and verifies service account tokens."""
        path = self._folder / "service-account.key"
        if not path.exists():
            write_private(path, _pem(ec.generate_private_key(ec.SECP256R1())))
        return path

    def issue(self, file: str, common_name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Credential:
        """Return a certificate for a client (user ``common_name`` in ``groups``) or a server (its ``hosts``)."""
        credential = Credential(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        if not (credential.certificate.exists() and credential.key.exists()):
            signer = serialization.load_pem_private_key(self.own.key.read_bytes(), password=None)
            if not isinstance(signer, ec.EllipticCurvePrivateKey):
                raise TypeError(f"{self.own.key} holds another kind of key than was written")
            issuer = x509.load_pem_x509_certificate(self.own.certificate.read_bytes()).subject
            key = ec.generate_private_key(ec.SECP256R1())
            subject = _name(common_name, groups)
            self._write(credential, key, self._sign(subject, issuer, key, signer, hosts=hosts))
        return credential

    def _write(self, credential: Credential, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate) -> None:
        write_private(credential.key, _pem(key))
        write_private(credential.certificate, cert.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def _sign(
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        signer: ec.EllipticCurvePrivateKey,
        *,
        hosts: Sequence[str] = (),
        authority: bool = False,
    ) -> x509.Certificate:
        # Valid from an hour ago: a clock that was just set back must not make the certificate invalid.
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(_usage(authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if not authority:
            purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(signer, hashes.SHA256())


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # the API server does not find the public half in PKCS 8
        serialization.NoEncryption(),
    )
