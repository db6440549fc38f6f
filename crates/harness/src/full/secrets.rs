//! The password of the lab's role with its SCRAM verifier (made by PostgreSQL itself), and a certificate for TLS
//! (made by openssl). Every subject gets the same.

use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::template::{CERTIFICATE_FILE, KEY_FILE};
use lab::client::{Keyring, SERVER_NAME, trusting};
use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::process;

const PASSWORD: &str = "a password of the lab";

/// What clients prove themselves and the poolers with.
pub(super) struct Secrets {
    pub(super) password: &'static str,
    /// Trusts the lab's certificate.
    pub(super) tls: Arc<ClientConfig>,
}

impl Secrets {
    /// Makes them in the lab's directory: `users.txt`, key and certificate.
    pub(super) fn make(lab: &Lab) -> Result<Self> {
        let mut superuser = lab.cluster().superuser("postgres")?;
        superuser.query("SET password_encryption = 'scram-sha-256'")?;
        superuser.query(&format!("ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'"))?;
        let rows = superuser.query(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{ROLE}'"))?;
        let verifier = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        lab.place().write("users.txt", &format!("\"{ROLE}\" \"{verifier}\"\n"))?;
        make_certificate(lab)?;
        let file = lab.place().join(CERTIFICATE_FILE);
        let pem = std::fs::read(&file).map_err(LabError::system(format!("reading {}", file.display())))?;
        Ok(Self { password: PASSWORD, tls: trusting(&pem)? })
    }

    /// For a login with the password.
    pub(super) fn keyring(&self) -> Keyring {
        Keyring::new(self.password)
    }
}

/// P-256, as most certificates of today; no authority, so that a client may trust it by itself.
fn make_certificate(lab: &Lab) -> Result<()> {
    let mut command = Command::new("openssl");
    let fixed = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 7 -batch";
    command.current_dir(lab.place().path()).args(fixed.split(' ')).args([
        "-subj",
        &format!("/CN={SERVER_NAME}"),
        "-addext",
        &format!("subjectAltName=DNS:{SERVER_NAME}"),
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        KEY_FILE,
        "-out",
        CERTIFICATE_FILE,
    ]);
    let finished = process::run(command, lab.place().identity(), lab.interrupt(), &mut |_| {})?;
    finished.success("openssl").map(drop)
}
