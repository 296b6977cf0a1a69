"""Certificates for tests: an authority made on the spot with the openssl program, thrown away with the folder."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority that only a test trusts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        self._count = 0
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=Test Authority", "-keyout", self._key, "-out", self.certificate,
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def server_context(self, *names: str, self_signed: bool = False, expired: bool = False) -> ssl.SSLContext:
        """What a TLS server for these DNS names or addresses needs."""
        self._count += 1
        key = self._folder / f"server-{self._count}.key"
        request = self._folder / f"server-{self._count}.csr"
        certificate = self._folder / f"server-{self._count}.pem"
        extensions = self._folder / f"server-{self._count}.ext"
        kinds = [f"IP:{n}" if n.replace(".", "").isdigit() or ":" in n else f"DNS:{n}" for n in names]
        extensions.write_text(f"subjectAltName={','.join(kinds)}\nbasicConstraints=CA:FALSE\n")
        _openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={names[0]}", "-keyout", key, "-out", request,
        )  # fmt: skip
        signer: tuple[object, ...] = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        if self_signed:
            signer = ("-signkey", key)
        if expired:
            # `x509 -req` of OpenSSL 3.0 knows no end date in the past but a negative number of days.
            _openssl("x509", "-req", "-in", request, *signer, "-days", "-1", "-extfile", extensions,
                     "-out", certificate)  # fmt: skip
        else:
            _openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", extensions,
                     "-out", certificate)  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
