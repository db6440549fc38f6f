//! Changes of `http_auth_file` by the panel: a user or a token is added, changed, removed.
//!
//! Owns the rules: nobody gives or takes scopes that are not their own, and an admin is always left. Comments and the lines of others
//! stay as they are. Never keeps a password.

use serde::Serialize;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use crate::access::credentials::{PanelCredentials, password_line, token_line};
use crate::access::scope::{Admin, RequiredScope as _, Scopes};
use crate::access::{Access, Caller, held};
use crate::context::PanelContext;
use crate::failure::Failure;

/// Of a file that is new.
const MODE: u32 = 0o600;

/// What kind of line it is.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CredentialKind {
    User,
    Token,
}

/// What is to become of the lines of one name.
#[derive(Clone, Debug)]
pub(crate) enum CredentialChange {
    /// A new user.
    AddUser { scopes: String, password: String },
    /// A new token, whose text is given back.
    AddToken { scopes: String },
    /// Other scopes, another password, or both.
    Replace { scopes: Option<String>, password: Option<String> },
    /// No line any more.
    Remove,
}

/// A user or token of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialInfo {
    pub(crate) kind: CredentialKind,
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
}

impl CredentialKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            CredentialKind::User => "user",
            CredentialKind::Token => "token",
        }
    }
}

/// Makes a change, which counts at once; gives the text of a new token.
///
/// # Errors
/// [`Failure`]: 409 where no file is named, the name is taken, or no admin would be left; 403 for scopes that the caller has not; 404;
/// 422 for a name, scopes or a password that cannot be.
pub(crate) async fn change(
    access: &Access,
    context: &PanelContext,
    caller: &Caller,
    kind: CredentialKind,
    name: &str,
    change: CredentialChange,
) -> Result<Option<String>, Failure> {
    let path = context.config().global.http_auth_file.clone().filter(|path| !path.is_empty());
    let path = path.ok_or(Failure::NoAuthFile)?;
    // One change at a time: each begins with what the one before has left.
    let _turn = access.auth_file.lock().await;
    let (scopes, name) = (caller.scopes, name.to_owned());
    let edited = spawn_blocking(move || {
        let text = std::fs::read_to_string(&path).map_err(|why| unwritable(&path, &why.to_string()))?;
        let (text, token) = edit(&text, scopes, kind, &name, &change)?;
        securefs::replace(&path, text.as_bytes(), MODE).map_err(|why| unwritable(&path, &why.to_string()))?;
        Ok::<_, Failure>(token)
    });
    let token = edited.await.map_err(|_| Failure::ServerError)??;
    access.reload(&context.config().global, context.log_writer());
    Ok(token)
}

/// The users and tokens of the file now.
pub(crate) fn list(access: &Access) -> Vec<CredentialInfo> {
    held(&access.credentials).list()
}

fn unwritable(path: &str, why: &str) -> Failure {
    Failure::AuthFileUnwritable { path: path.to_owned(), why: why.to_owned() }
}

/// The text of the file after a change, and that of a new token.
fn edit(
    text: &str,
    own: Scopes,
    kind: CredentialKind,
    name: &str,
    change: &CredentialChange,
) -> Result<(String, Option<String>), Failure> {
    let before = PanelCredentials::read(text).map_err(|why| Failure::AuthFileBroken(why.to_string()))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is_own = |line: &String| {
        let mut words = line.split_whitespace();
        words.next() == Some(kind.word()) && words.next() == Some(name)
    };
    let there = lines.iter().find(|line| is_own(line)).cloned();
    let list = before.list();
    let of_name = list.iter().filter(|one| one.kind == kind && one.name == name);
    if of_name.clone().any(|one| !own.have(one.scopes)) {
        return Err(Failure::HasOtherScopes(name.to_owned()));
    }
    let (made, token) = match (change, there) {
        (CredentialChange::AddUser { .. } | CredentialChange::AddToken { .. }, Some(_)) => {
            return Err(Failure::CredentialExists { kind: kind.word(), name: name.to_owned() });
        }
        (CredentialChange::AddUser { scopes, password }, None) => {
            (Some(password_line(name, scopes, password).map_err(refused)?), None)
        }
        (CredentialChange::AddToken { scopes }, None) => {
            let (line, token) = token_line(name, scopes).map_err(refused)?;
            (Some(line), Some(token))
        }
        (_, None) => return Err(Failure::NotFound),
        (CredentialChange::Remove, Some(_)) => (None, None),
        (CredentialChange::Replace { scopes, password }, Some(there)) => {
            (Some(changed(&there, scopes.as_deref(), password.as_deref())?), None)
        }
    };
    let place = lines.iter().position(is_own);
    let mut after: Vec<String> = lines.iter().filter(|line| !is_own(line)).cloned().collect();
    if let Some(line) = made {
        after.insert(place.unwrap_or(after.len()).min(after.len()), line);
    }
    let text = after.iter().fold(String::new(), |text, line| text + line + "\n");
    let credentials = PanelCredentials::read(&text)
        .map_err(|why| Failure::Invalid { field: None, why: why.to_string() })?;
    let mut list = credentials.list().into_iter();
    if list.clone().any(|one| one.kind == kind && one.name == name && !own.have(one.scopes)) {
        return Err(Failure::GrantsOtherScopes);
    }
    if !list.any(|one| one.scopes.have(Admin::SCOPE)) {
        return Err(Failure::LastAdmin);
    }
    Ok((text, token))
}

/// The line with other scopes, another password, or both.
fn changed(line: &str, scopes: Option<&str>, password: Option<&str>) -> Result<String, Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [kind, name, known, hash] = words[..] else { return Err(Failure::ServerError) };
    let scopes = scopes.unwrap_or(known);
    match password {
        Some(_) if kind != CredentialKind::User.word() => Err(Failure::PasswordOfToken),
        Some(password) => password_line(name, scopes, password).map_err(refused),
        None => {
            let read = Scopes::read(scopes)
                .ok_or_else(|| refused(super::CredentialError::Scopes(scopes.to_owned())))?;
            Ok(format!("{kind} {name} {read} {hash}"))
        }
    }
}

fn refused(why: super::CredentialError) -> Failure {
    let field = match &why {
        super::CredentialError::Name => "name",
        super::CredentialError::Scopes(_) => "scopes",
        super::CredentialError::Password => "password",
    };
    Failure::invalid(field, why.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file() -> String {
        let ann = password_line("ann", "read,operate,admin", "correct horse").unwrap();
        let (token, _) = token_line("ci", "read").unwrap();
        format!("# ours\n{ann}\n\n{token}\n")
    }

    fn scopes(text: &str) -> Scopes {
        Scopes::read(text).unwrap()
    }

    fn admin() -> Scopes {
        scopes("read,operate,admin")
    }

    #[test]
    fn users_come_change_and_go_and_other_lines_stay() {
        let add = CredentialChange::AddUser { scopes: "read".into(), password: "long enough".into() };
        let file = file();
        let (text, _) = edit(&file, admin(), CredentialKind::User, "bob", &add).unwrap();
        assert!(text.starts_with(&file), "{text}");
        assert!(PanelCredentials::read(&text).unwrap().user("bob").unwrap().is("long enough"));
        assert_eq!(edit(&text, admin(), CredentialKind::User, "bob", &add).unwrap_err().code(), 409);
        let more = CredentialChange::Replace { scopes: Some("read,operate".into()), password: None };
        let (text, _) = edit(&text, admin(), CredentialKind::User, "bob", &more).unwrap();
        let credentials = PanelCredentials::read(&text).unwrap();
        let bob = credentials.user("bob").unwrap();
        assert!(bob.is("long enough") && bob.scopes == scopes("read,operate"));
        let other = CredentialChange::Replace { scopes: None, password: Some("another one".into()) };
        let (text, _) = edit(&text, admin(), CredentialKind::User, "bob", &other).unwrap();
        assert!(PanelCredentials::read(&text).unwrap().user("bob").unwrap().is("another one"));
        let (text, _) = edit(&text, admin(), CredentialKind::User, "bob", &CredentialChange::Remove).unwrap();
        assert_eq!(text, file);
        assert_eq!(
            edit(&text, admin(), CredentialKind::User, "bob", &CredentialChange::Remove).unwrap_err().code(),
            404
        );
    }

    #[test]
    fn an_admin_is_always_left() {
        let less = CredentialChange::Replace { scopes: Some("read".into()), password: None };
        for change in [CredentialChange::Remove, less] {
            assert_eq!(edit(&file(), admin(), CredentialKind::User, "ann", &change).unwrap_err().code(), 409);
        }
        assert!(edit(&file(), admin(), CredentialKind::Token, "ci", &CredentialChange::Remove).is_ok());
    }

    #[test]
    fn nobody_gives_or_takes_what_they_do_not_have() {
        let add = CredentialChange::AddUser {
            scopes: "read,view_credentials".into(),
            password: "long enough".into(),
        };
        assert_eq!(edit(&file(), admin(), CredentialKind::User, "bob", &add).unwrap_err().code(), 403);
        let (text, _) = edit(&file(), Scopes::ALL, CredentialKind::User, "bob", &add).unwrap();
        let other = CredentialChange::Replace { scopes: None, password: Some("another one".into()) };
        for change in [CredentialChange::Remove, other] {
            assert_eq!(edit(&text, admin(), CredentialKind::User, "bob", &change).unwrap_err().code(), 403);
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_its_field() {
        let add = |scopes: &str, password: &str| CredentialChange::AddUser {
            scopes: scopes.into(),
            password: password.into(),
        };
        for (name, change, field) in [
            ("a b", add("read", "long enough"), "name"),
            ("bob", add("root", "long enough"), "scopes"),
            ("bob", add("read", "short"), "password"),
        ] {
            let failure = edit(&file(), admin(), CredentialKind::User, name, &change).unwrap_err();
            assert_eq!((failure.code(), failure.field()), (422, Some(field)));
        }
        let (text, token) = edit(
            &file(),
            admin(),
            CredentialKind::Token,
            "new",
            &CredentialChange::AddToken { scopes: "read".into() },
        )
        .unwrap();
        assert!(PanelCredentials::read(&text).unwrap().token(&token.unwrap()).is_some());
    }
}
