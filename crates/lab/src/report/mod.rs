//! An experiment for people: text for the terminal, a page, pictures. Reads the record and nothing else; all that comes
//! from outside is escaped where it goes into a page or a picture; never measures, never judges (the advisor does).

mod command;
mod compared;
mod page;
mod picture;
mod scene;
mod sparkline;
mod table;
mod text;
mod words;

use std::fs;
use std::path::Path;

use crate::advisor::advise;
use crate::error::{LabError, Result};
use crate::record::Experiment;

pub use sparkline::sparkline;

/// The page's name in the result's directory.
pub const PAGE: &str = "index.html";

/// The directory of pictures in the result's directory.
pub const PICTURES: &str = "pictures";

/// The report for a terminal.
#[must_use]
pub fn terminal(experiment: &Experiment) -> String {
    text::text(experiment, &advise(experiment))
}

/// Writes the page and the pictures (SVG and PNG) into the result's directory.
///
/// # Errors
/// [`LabError::System`] with the file's name: a full disk, a directory that cannot be written.
pub fn write(experiment: &Experiment, directory: &Path) -> Result<()> {
    let advice = advise(experiment);
    let pictures = picture::pictures(experiment, &advice)?;
    let place = directory.join(PICTURES);
    fs::create_dir_all(&place).map_err(LabError::system(format!("making {}", place.display())))?;
    for picture in &pictures {
        file(&place.join(format!("{}.svg", picture.name)), picture.svg.as_bytes())?;
        file(&place.join(format!("{}.png", picture.name)), &picture.png()?)?;
    }
    file(&directory.join(PAGE), page::page(experiment, &advice, &pictures).as_bytes())
}

fn file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(LabError::system(format!("writing {}", path.display())))
}

/// Text as HTML or XML: safe between tags and in quoted attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
    }

    #[test]
    fn page_and_pictures_are_written_and_a_full_place_is_named() {
        let directory = std::env::temp_dir().join(format!("weir-report-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        write(&sample::experiment(), &directory).expect("a report");
        let pictures = fs::read_dir(directory.join(PICTURES)).expect("pictures").count();
        assert_eq!(pictures, 16);
        assert!(directory.join(PAGE).is_file());
        let said = write(&sample::experiment(), &directory.join(PAGE)).expect_err("no directory").to_string();
        assert!(said.contains(PAGE), "{said}");
        fs::remove_dir_all(directory).expect("removed");
    }
}
