"""Certificates as people make them: by the openssl command, either version 1 with nothing but a common name (what
`openssl x509 -req` writes unless told otherwise) or version 3 with alternative names."""

import subprocess

import host

SUBJECT = "/O=Weir tests/CN="


class Certificate:
    """A certificate and its key, as files."""

    def __init__(self, directory, name):
        self.cert = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        self.request = directory / f"{name}.csr"


class Authority(Certificate):
    """A root that signs. `version` is 1 or 3, its own and that of what it signs."""

    def __init__(self, directory, name, version=3):
        super().__init__(directory, name)
        self.directory = directory
        self.version = version
        make_key(self.key)
        if version == 3:
            openssl("req", "-x509", "-new", "-key", self.key, "-out", self.cert, "-days", 30, "-subj", SUBJECT + name)
        else:
            openssl("req", "-new", "-key", self.key, "-out", self.request, "-subj", SUBJECT + name)
            openssl("x509", "-req", "-in", self.request, "-signkey", self.key, "-out", self.cert, "-days", 30)
        host.hand_over(self.cert)

    def issue(self, name, common_name, alternatives="", days=30, rsa=False, extensions=""):
        """A certificate of this root; `alternatives` is openssl's list (`DNS:localhost,IP:127.0.0.1`)."""
        issued = Certificate(self.directory, name)
        make_key(issued.key, rsa)
        openssl("req", "-new", "-key", issued.key, "-out", issued.request, "-subj", SUBJECT + common_name)
        wanted = (f"subjectAltName={alternatives}\n" if alternatives else "") + extensions
        extra = []
        if self.version == 3:
            path = self.directory / f"{name}.ext"
            path.write_text(f"basicConstraints=CA:FALSE\n{wanted}")
            extra = ["-extfile", path]
        signer = ["-CA", self.cert, "-CAkey", self.key, "-CAcreateserial"]
        openssl("x509", "-req", "-in", issued.request, *signer, "-out", issued.cert, "-days", days, *extra)
        host.hand_over(issued.cert)
        return issued


def make_key(path, rsa=False):
    if rsa:
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path)
    else:
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    path.chmod(0o600)
    host.hand_over(path)


def openssl(*arguments):
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
