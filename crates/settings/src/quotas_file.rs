//! The file of quotas (`quotas_file`), read for a configuration. Its words are the `quota` crate's.

use std::io;
use std::sync::Arc;

use quota::Rules;

use crate::Global;
use crate::files::{Files, reason};
use crate::finding::{Finding, Origin};

/// The file that the settings name, if they name one.
#[must_use]
pub fn quotas_path(global: &Global) -> Option<&str> {
    global.quotas_file.as_deref().filter(|path| !path.is_empty())
}

/// Reads the file; there are no quotas if the settings name none, or one that does not exist.
///
/// # Errors
/// Every line that is wrong: none of the file counts then.
pub fn read_quotas(files: &dyn Files, global: &Global) -> Result<Arc<Rules>, Vec<Finding>> {
    let Some(path) = quotas_path(global) else { return Ok(Arc::default()) };
    let at = |line| Origin { file: path.into(), line };
    let bytes = match files.read(path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
        Err(why) => {
            return Err(vec![Finding::error(&at(0), format!("cannot read quotas_file: {}", reason(&why)))]);
        }
    };
    let errors = |errors: Vec<quota::QuotaError>| {
        errors.into_iter().map(|error| Finding::error(&at(error.line), error.message)).collect()
    };
    Rules::read(&bytes).map(Arc::new).map_err(errors)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::files::memory::Memory;
    use crate::{load, reload};

    const MAIN: (&str, &str) = ("w.ini", "[databases]\na = host=h\n[pgbouncer]\nquotas_file = q");

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_lines() {
        let good = load(&Memory(&[MAIN, ("q", "user a connections hard=3")]), "w.ini", &[]).unwrap();
        assert!(!good.quotas.is_empty());
        assert!(load(&Memory(&[MAIN]), "w.ini", &[]).unwrap().quotas.is_empty(), "it need not exist");
        let bad = Memory(&[
            MAIN,
            ("q", "user a connections hard=3\nuser a connections soft=2\nuser b queries hard=1"),
        ]);
        for findings in
            [load(&bad, "w.ini", &[]).err().unwrap(), reload(&bad, "w.ini", &[], &good).err().unwrap()]
        {
            let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(texts.len(), 2, "{texts:?}");
            assert!(texts[0].starts_with("q:2: user a connections is in line 1 already"), "{texts:?}");
            assert!(texts[1].starts_with("q:3: queries needs a period"), "{texts:?}");
        }
    }
}
