//! `weir panel password` and `weir panel token`: lines of `http_auth_file`, for `>>`.
//! Owns how a password is asked for. Never shows one, and never writes a file.

use std::io::{self, IsTerminal as _, Write as _};

use programs::Status;

use crate::cli::CredentialTask;

/// Makes the line.
pub(crate) fn run(task: &CredentialTask) -> Status {
    match line(task) {
        Ok(line) => {
            let _ = writeln!(io::stdout(), "{line}");
            Status::Done
        }
        Err(why) => {
            let _ = writeln!(io::stderr(), "weir: {why}");
            Status::Failed
        }
    }
}

fn line(task: &CredentialTask) -> Result<String, String> {
    match task {
        CredentialTask::Password { name, scopes } => {
            let password = password(name).map_err(|why| format!("no password: {why}"))?;
            panel::password_line(name, scopes, &password).map_err(|no| no.to_string())
        }
        CredentialTask::Token { name, scopes } => {
            let (line, token) = panel::token_line(name, scopes).map_err(|no| no.to_string())?;
            let _ = writeln!(io::stderr(), "the token of {name}, shown this once: {token}");
            Ok(line)
        }
    }
}

/// Twice from a terminal, which does not show it; one line from anything else.
fn password(name: &str) -> io::Result<String> {
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = rpassword::prompt_password(format!("password of {name}: "))?;
    let again = rpassword::prompt_password("again: ")?;
    if first == again { Ok(first) } else { Err(io::Error::other("the two are not the same")) }
}
