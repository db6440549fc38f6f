//! Where JMeter 5 is: a directory as its own archive unpacks to, with pgjdbc in its `lib`. Checks what a run needs and
//! says which part is missing; downloads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};

/// An installed JMeter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    directory: PathBuf,
    java: PathBuf,
    version: String,
}

impl Home {
    /// The JMeter in `directory`, or else in JMETER_HOME, or the usual places.
    ///
    /// # Errors
    /// [`LabError::Missing`] with what is not there and where it comes from.
    pub fn find(directory: Option<&Path>) -> Result<Self> {
        let named =
            directory.map(Path::to_path_buf).or_else(|| std::env::var_os("JMETER_HOME").map(PathBuf::from));
        let usual = ["/opt/jmeter", "/usr/local/jmeter", "target/jmeter"].map(PathBuf::from);
        let candidates = named.map_or_else(|| usual.to_vec(), |named| vec![named]);
        let is_there = |home: &&PathBuf| home.join("bin/ApacheJMeter.jar").is_file();
        let missing = |what: String, remedy: &str| LabError::Missing { what, remedy: remedy.to_owned() };
        let directory = candidates.iter().find(is_there).ok_or_else(|| {
            let places = candidates.iter().map(|home| home.display().to_string()).collect::<Vec<_>>().join(", ");
            let remedy = "unpack Apache JMeter 5 (Debian's own is too old) and name its directory: JMETER_HOME or --jmeter-home";
            missing(format!("JMeter is not on this machine: no bin/ApacheJMeter.jar in {places}"), remedy)
        })?;
        let directory = directory
            .canonicalize()
            .map_err(LabError::system(format!("looking at {}", directory.display())))?;
        let version = jar(&directory.join("lib/ext"), "ApacheJMeter_core-").unwrap_or_else(|| "5".to_owned());
        let library = directory.join("lib");
        let driver = jar(&library, "postgresql-").ok_or_else(|| {
            let remedy = "put postgresql-42.x.jar of Maven's org.postgresql:postgresql there; Debian, Ubuntu: \
                apt-get install libpostgresql-jdbc-java and a link to /usr/share/java/postgresql.jar";
            missing(format!("pgjdbc is missing: no postgresql-*.jar in {}", library.display()), remedy)
        })?;
        let java = std::env::var_os("JAVA_HOME")
            .map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"));
        let starts = Command::new(&java).arg("-version").output().is_ok_and(|output| output.status.success());
        if !starts {
            let remedy = "Debian, Ubuntu: apt-get install default-jre-headless";
            return Err(missing(format!("{} does not start", java.display()), remedy));
        }
        let version = format!("Apache JMeter {version}, pgjdbc {driver}");
        Ok(Self { directory, java, version })
    }

    /// The program, for `java -jar`.
    #[must_use]
    pub(super) fn program(&self) -> PathBuf {
        self.directory.join("bin/ApacheJMeter.jar")
    }

    /// Java.
    #[must_use]
    pub(super) fn java(&self) -> &Path {
        &self.java
    }

    /// Its version and pgjdbc's.
    #[must_use]
    pub(super) fn version(&self) -> String {
        self.version.clone()
    }
}

/// The version in the name of a jar that begins with `name`.
fn jar(directory: &Path, name: &str) -> Option<String> {
    let names = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|file| Some(file.to_str()?.strip_prefix(name)?.strip_suffix(".jar")?.to_owned())).next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_part_that_is_missing_is_named() {
        let home = std::env::temp_dir().join(format!("weir-jmeter-{}", std::process::id()));
        for directory in ["bin", "lib/ext"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        let said = |home: &Path| Home::find(Some(home)).unwrap_err().to_string();
        assert!(said(&home).contains("no bin/ApacheJMeter.jar in"), "{}", said(&home));
        std::fs::write(home.join("bin/ApacheJMeter.jar"), "").unwrap();
        assert!(said(&home).contains("pgjdbc is missing"), "{}", said(&home));
        std::fs::write(home.join("lib/postgresql-42.7.8.jar"), "").unwrap();
        assert_eq!(jar(&home.join("lib"), "postgresql-").as_deref(), Some("42.7.8"));
        std::fs::remove_dir_all(home).unwrap();
    }
}
