"""A private LDAP directory for the tests: OpenLDAP's slapd with a few people, plain and over TLS, as the servers' user.
Knows nothing of Weir; what it is asked stands in the tests."""

import base64
import shutil
import subprocess
from pathlib import Path

import host

PROGRAM = Path("/usr/sbin/slapd")
BASE = "dc=example,dc=net"
# A place whose entries are in another directory (which is this one, under its other name).
AWAY = "dc=away,dc=net"
PEOPLE = f"ou=people,{BASE}"
MANAGER = f"cn=manager,{BASE}"
MANAGER_PASSWORD = 'mana"ger, 1'
LONG_PASSWORD = "long" * 16_000
# Longer than any fixed buffer for a name would be.
LONG_UNIT = "u" * 400

CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {directory}/slapd.pid
TLSCertificateFile {directory}/server.crt
TLSCertificateKeyFile {directory}/server.key
TLSCACertificateFile {directory}/ca.crt
database mdb
maxsize 10485760
dbnosync
directory {directory}/data
suffix "{base}"
rootdn "{manager}"
rootpw "{password}"
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="ou=closed,{base}" by anonymous auth by * none
access to * by * read
database mdb
maxsize 10485760
dbnosync
directory {directory}/away
suffix "{away}"
rootdn "cn=manager,{away}"
access to * by * read
"""
REFERRAL = """
dn: {away}
objectClass: referral
objectClass: extensibleObject
dc: away
ref: ldap://127.0.0.1:{port}/{people}
"""


def is_here():
    return PROGRAM.exists()


def person(uid, password, unit=PEOPLE, **attributes):
    """One entry, values in base64, so that any of them may hold anything."""
    escaped = "".join("\\" + letter if letter in ',+"\\<>;=' else letter for letter in uid)
    values = {"cn": uid, "sn": uid, "uid": uid, "userPassword": password, **attributes}
    encode = lambda text: base64.b64encode(text.encode()).decode()
    lines = [f"dn:: {encode(f'uid={escaped},{unit}')}", "objectClass: inetOrgPerson"]
    return "\n".join(lines + [f"{name}:: {encode(value)}" for name, value in values.items()]) + "\n"


def unit(name, above=BASE):
    return f"dn: ou={name},{above}\nobjectClass: organizationalUnit\nou: {name}\n"


class Slapd:
    """One directory; `port` is plain LDAP (and StartTLS), `tls_port` is LDAP over TLS."""

    def __init__(self, scratch, people):
        self.directory = host.new_directory(scratch, "slapd")
        for data in ("data", "away"):
            host.hand_over(_made(self.directory / data))
        self.program = _copy(scratch)
        self.port, self.tls_port = host.free_port(), host.free_port()
        self.ca = self.directory / "ca.crt"
        self.process = None
        self._certificates()
        words = {"base": BASE, "away": AWAY, "manager": MANAGER, "password": MANAGER_PASSWORD.replace('"', '\\"')}
        self.configuration = self._file("slapd.conf", CONFIGURATION.format(directory=self.directory, **words))
        top = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n"
        entries = [top, *(unit(name) for name in ("people", "closed", "twins", LONG_UNIT[:60])), *people]
        self._load(BASE, "\n".join(entries))
        self._load(AWAY, REFERRAL.format(away=AWAY, port=self.port, people=PEOPLE))
        self.start()

    def _load(self, suffix, entries):
        load = [self.program, "-T", "add", "-f", self.configuration, "-b", suffix]
        host.run([*load, "-l", self._file("people.ldif", entries)], cwd=self.directory)

    def start(self):
        addresses = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        with open(self.directory / "log", "ab") as log:
            command = [self.program, "-d", "none", "-f", self.configuration, "-h", addresses]
            self.process = host.start(command, cwd=self.directory, stdout=log, stderr=log)
        host.eventually(self.is_up, timeout=60)

    def is_up(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()
        return all(host.is_listening(port, "") for port in (self.port, self.tls_port))

    def stop(self):
        host.stop(self.process)

    def _certificates(self):
        """An authority, and a certificate of its making for 127.0.0.1 and localhost."""
        here = self.directory
        openssl = lambda *words: subprocess.run(["openssl", *words], cwd=here, check=True, capture_output=True)
        new_key = ("-newkey", "rsa:2048", "-nodes")
        openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=weir test ca", "-days", "2")
        openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
        (here / "extensions").write_text("subjectAltName = DNS:localhost, IP:127.0.0.1\n")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
        openssl("x509", "-req", "-in", "server.csr", "-out", "server.crt", *signing)
        for path in here.iterdir():
            host.hand_over(path)

    def _file(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return host.hand_over(path)


def _made(path):
    path.mkdir()
    return path


def _copy(scratch):
    """AppArmor lets Debian's slapd at Debian's directories alone, and knows it by its path."""
    copy = scratch / "slapd-copy"
    if not copy.exists():
        shutil.copy(PROGRAM, copy)
        copy.chmod(0o755)
    return copy
