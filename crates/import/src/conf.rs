//! The lines of pgpool.conf: `name = value`, comments, quotes, `include`. Owns where a value begins and ends and which of several
//! assignments counts. Knows no setting.
//!
//! The syntax is that of postgresql.conf: the equals sign may be missing, a value that is no simple word or number stands in single quotes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use settings::{Files, Finding, Origin};

/// How deep files may include files, as in PostgreSQL.
const MAX_INCLUDE_DEPTH: usize = 10;
/// How many files may be included in all: a few that include each other twice would otherwise not end.
const MAX_INCLUDES: usize = 1000;

/// A setting as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Its name in lower case: names have no case.
    pub name: String,
    /// Its value without quotes.
    pub value: String,
    /// Where it stands.
    pub at: Origin,
}

/// A file with its includes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Every assignment, in file order.
    pub assignments: Vec<Assignment>,
    /// Lines that could not be read.
    pub errors: Vec<Finding>,
}

/// An error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyntaxError {
    NotText,
    NoName,
    NoValue,
    NoQuote,
    AfterValue,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SyntaxError::NotText => "syntax error: not UTF-8 text",
            SyntaxError::NoName => "syntax error: expected the name of a setting",
            SyntaxError::NoValue => "syntax error: the setting has no value",
            SyntaxError::NoQuote => "syntax error: the quoted value does not end in this line",
            SyntaxError::AfterValue => {
                "syntax error: expected the end of the line after the value (a value that is no simple word needs quotes)"
            }
        })
    }
}

impl Conf {
    /// Reads a file with its includes; their paths are relative to the file that names them.
    #[must_use]
    pub fn read(files: &dyn Files, path: &str) -> Self {
        let mut reader = Reader { files, conf: Self::default(), open: Vec::new(), included: 0 };
        let file: Arc<str> = path.into();
        if let Err(message) = reader.file(&file) {
            reader.conf.errors.push(Finding::error(&Origin { file, line: 0 }, message));
        }
        reader.conf
    }

    /// The assignments that count: of several for a name the last.
    #[must_use]
    pub fn last(&self) -> BTreeMap<&str, &Assignment> {
        self.assignments.iter().map(|assignment| (assignment.name.as_str(), assignment)).collect()
    }
}

/// Builds a [`Conf`].
struct Reader<'a> {
    files: &'a dyn Files,
    conf: Conf,
    /// The files being read, outermost first.
    open: Vec<Arc<str>>,
    included: usize,
}

impl Reader<'_> {
    fn file(&mut self, file: &Arc<str>) -> Result<(), String> {
        let bytes = self.files.read(file).map_err(|error| {
            let text = error.to_string();
            format!("could not load file \"{file}\": {}", text.split(" (os error").next().unwrap_or_default())
        })?;
        self.open.push(file.clone());
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let at = Origin { file: file.clone(), line: u32::try_from(index + 1).unwrap_or(u32::MAX) };
            match statement(line) {
                Ok(None) => {}
                Ok(Some((name, value))) if name == "include" => self.include(&value, &at),
                Ok(Some((name, value))) => self.conf.assignments.push(Assignment { name, value, at }),
                Err(broken) => self.error(&at, broken.to_string()),
            }
        }
        self.open.pop();
        Ok(())
    }

    fn include(&mut self, path: &str, at: &Origin) {
        let file: Arc<str> = beside(&at.file, path).into();
        if self.open.contains(&file) {
            return self.error(at, format!("\"{path}\" includes itself"));
        }
        if self.open.len() > MAX_INCLUDE_DEPTH {
            return self.error(at, format!("include nesting level too deep (over {MAX_INCLUDE_DEPTH})"));
        }
        self.included += 1;
        if self.included > MAX_INCLUDES {
            // Reported once: the rest of such a tree would only repeat it.
            if self.included == MAX_INCLUDES + 1 {
                self.error(at, format!("too many includes (over {MAX_INCLUDES})"));
            }
            return;
        }
        if let Err(message) = self.file(&file) {
            self.error(at, message);
        }
    }

    fn error(&mut self, at: &Origin, message: String) {
        self.conf.errors.push(Finding::error(at, message));
    }
}

/// A path as a file names it: relative to that file's directory.
pub(crate) fn beside(file: &str, path: &str) -> String {
    match file.rsplit_once('/') {
        Some((directory, _)) if !path.starts_with('/') => format!("{directory}/{path}"),
        _ => path.to_owned(),
    }
}

/// The name, in lower case, and the value of a line; None for a blank one.
fn statement(line: &[u8]) -> Result<Option<(String, String)>, SyntaxError> {
    let line = line.trim_ascii();
    if matches!(line.first(), None | Some(b'#')) {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or(SyntaxError::NotText)?;
    let end = text.find(|letter: char| !is_name_letter(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err(SyntaxError::NoName);
    }
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_ascii_start();
    let (value, after) = match rest.strip_prefix('\'') {
        Some(quoted) => unquote(quoted).ok_or(SyntaxError::NoQuote)?,
        None => {
            let end = rest.find(|letter: char| letter.is_ascii_whitespace() || "#'".contains(letter));
            let (value, after) = rest.split_at(end.unwrap_or(rest.len()));
            if value.is_empty() {
                return Err(SyntaxError::NoValue);
            }
            (value.to_owned(), after)
        }
    };
    match after.trim_ascii_start().chars().next() {
        None | Some('#') => Ok(Some((name.to_ascii_lowercase(), value))),
        Some(_) => Err(SyntaxError::AfterValue),
    }
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_.$".contains(letter)
}

/// The text up to the closing quote and what follows it; a doubled quote, and one behind a backslash, is one.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' if text[at + 1..].starts_with('\'') => {
                letters.next();
                value.push('\'');
            }
            '\'' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::probe::Memory;

    fn read(files: &[(&str, &str)]) -> Conf {
        Conf::read(&Memory(files), "etc/pgpool.conf")
    }

    fn one(line: &str) -> Result<(String, String), String> {
        let conf = read(&[("etc/pgpool.conf", line)]);
        match &conf.errors[..] {
            [] => Ok(conf.assignments.into_iter().map(|one| (one.name, one.value)).next().unwrap()),
            [broken, ..] => Err(broken.to_string()),
        }
    }

    #[test]
    fn values_are_words_numbers_or_quoted() {
        for (line, name, value) in [
            ("port = 9999", "port", "9999"),
            ("  Port=9999\t# the port\r", "port", "9999"),
            ("port 9999", "port", "9999"),
            ("delegate_IP = ''", "delegate_ip", ""),
            ("log_line_prefix = '%t: # '", "log_line_prefix", "%t: # "),
            ("a = 'it''s'#x", "a", "it's"),
            (r"a = 'it\'s\n\\'", "a", "it's\n\\"),
            ("listen_addresses = *", "listen_addresses", "*"),
            ("memqcache_total_size = 64MB", "memqcache_total_size", "64MB"),
        ] {
            assert_eq!(one(line), Ok((name.to_owned(), value.to_owned())), "{line}");
        }
        assert!(read(&[("etc/pgpool.conf", "\n# a = b\n   \n\t#\n")]).assignments.is_empty());
    }

    #[test]
    fn a_bad_line_is_named_with_file_and_line() {
        for (line, word) in [
            ("port", "has no value"),
            ("port =", "has no value"),
            ("port = # 1", "has no value"),
            ("a = 'open", "does not end"),
            ("a = 'open\\'", "does not end"),
            ("a = 10 s", "end of the line"),
            ("a = 'b' c", "end of the line"),
            ("a = b'c'", "end of the line"),
            ("= 1", "the name of a setting"),
            ("1a = 1", "the name of a setting"),
            ("[pgbouncer]", "the name of a setting"),
            ("a = \0", "not UTF-8"),
        ] {
            let broken = one(&format!("\n{line}")).unwrap_err();
            assert!(broken.starts_with("etc/pgpool.conf:2: ") && broken.contains(word), "{line}: {broken}");
        }
        let conf = Conf::read(&crate::probe::Same(b"a = 1\nb = \xff\nc = 2"), "x");
        assert_eq!(conf.errors.len(), 1);
        assert_eq!(conf.errors[0].line, 2);
        assert_eq!(conf.assignments.len(), 2);
    }

    #[test]
    fn the_last_of_several_counts() {
        let conf = read(&[("etc/pgpool.conf", "port = 1\nPORT = 2")]);
        assert_eq!(conf.last()["port"].value, "2");
        assert_eq!(conf.assignments.len(), 2);
    }

    #[test]
    fn includes_are_read_in_place_beside_the_file_and_have_an_end() {
        let files = [
            ("etc/pgpool.conf", "a = 1\ninclude 'more/x.conf'\nc = 3"),
            ("etc/more/x.conf", "b = 2\ninclude = '/abs.conf'"),
            ("/abs.conf", "d = 4"),
        ];
        let conf = read(&files);
        let names: Vec<_> = conf.assignments.iter().map(|one| (one.name.as_str(), &*one.at.file)).collect();
        let main = "etc/pgpool.conf";
        assert_eq!(names, [("a", main), ("b", "etc/more/x.conf"), ("d", "/abs.conf"), ("c", main)]);
        let errors =
            |files: &[(&str, &str)]| read(files).errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let own = errors(&[("etc/pgpool.conf", "include 'pgpool.conf'")]);
        assert_eq!(own, ["etc/pgpool.conf:1: \"pgpool.conf\" includes itself"]);
        let gone = errors(&[("etc/pgpool.conf", "include 'gone'")]);
        assert_eq!(gone, ["etc/pgpool.conf:1: could not load file \"etc/gone\": No such file or directory"]);
        let deep: Vec<(String, String)> =
            (0..20).map(|level| (format!("etc/{level}"), format!("include '{}'", level + 1))).collect();
        let mut files: Vec<(&str, &str)> = deep.iter().map(|(name, text)| (&**name, &**text)).collect();
        files.push(("etc/pgpool.conf", "include '0'"));
        assert_eq!(errors(&files), ["etc/9:1: include nesting level too deep (over 10)"]);
        let wide = "include 'e'\n".repeat(MAX_INCLUDES + 5);
        assert_eq!(errors(&[("etc/pgpool.conf", &wide), ("etc/e", "")]).len(), 1);
        assert_eq!(errors(&[]).len(), 1);
    }
}
