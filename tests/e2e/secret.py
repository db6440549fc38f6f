"""Password secrets in the forms that PostgreSQL and the user file hold them (RFC 5802, RFC 7677; PostgreSQL's pg_authid)."""

import base64
import hashlib
import hmac


def md5(user, password):
    return "md5" + hashlib.md5((password + user).encode()).hexdigest()


def scram(password, salt=b"0123456789abcdef", iterations=4096):
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${iterations}:{salt64}${stored64}:{server64}"
