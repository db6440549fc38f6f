//! An experiment for people: text for the terminal, a page, pictures. Reads the record and nothing else; all that comes
//! from outside is escaped where it goes into a page or a picture; never measures, never judges (the advisor does).

mod command;
mod compared;
mod page;
mod picture;
mod scene;
mod self_sized;
mod sparkline;
mod table;
mod text;
mod words;

use std::fs;
use std::path::Path;

use commandline::Paint;

use crate::advisor::{Advice, advise};
use crate::error::{LabError, Result};
use crate::record::{Experiment, WarningKind};

pub use sparkline::sparkline;

/// The page's name in the result's directory.
pub const PAGE: &str = "index.html";

/// The directory of pictures in the result's directory.
pub const PICTURES: &str = "pictures";

/// The report for a terminal.
#[must_use]
pub fn terminal(experiment: &Experiment, paint: Paint) -> String {
    let (experiment, advice) = read(experiment);
    text::text(&experiment, &advice, paint)
}

/// What a comparison comes to, in sentences; nothing of other questions.
#[must_use]
pub fn headlines(experiment: &Experiment) -> Vec<String> {
    words::headlines(&read(experiment).0)
}

/// What reports are made of: the advice on all runs (it takes apart what a round does and what a size does), and the
/// experiment with only those runs that can be compared.
fn read(experiment: &Experiment) -> (Experiment, Advice) {
    let advice = advise(experiment);
    let mut experiment = experiment.clone();
    for text in words::left_out(&experiment.pair_rounds()) {
        experiment.warn(WarningKind::Excluded, text);
    }
    (experiment, advice)
}

/// Writes the page and the pictures (SVG and PNG) into the result's directory.
///
/// # Errors
/// [`LabError::System`] with the file's name: a full disk, a directory that cannot be written.
pub fn write(experiment: &Experiment, directory: &Path) -> Result<()> {
    let (experiment, advice) = read(experiment);
    let pictures = picture::pictures(&experiment, &advice)?;
    let place = directory.join(PICTURES);
    fs::create_dir_all(&place).map_err(LabError::system(format!("making {}", place.display())))?;
    for picture in &pictures {
        file(&place.join(format!("{}.svg", picture.name)), picture.svg.as_bytes())?;
        file(&place.join(format!("{}.png", picture.name)), &picture.png()?)?;
    }
    file(&directory.join(PAGE), page::page(&experiment, &advice, &pictures).as_bytes())
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
    use crate::record::{ExperimentKind, Point, Run};

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
    }

    #[test]
    fn medians_and_ratios_are_of_the_same_rounds_after_ctrl_c() {
        let run = |round, tps| Run { round, tps, ..Run::default() };
        let mut experiment = sample::experiment();
        experiment.question = ExperimentKind::Compare;
        let point = Point { workload: "writes".into(), clients: 50, ..Point::default() };
        let direct = vec![run(0, 1100.0), run(1, 1616.0)];
        experiment.points = vec![
            Point { target: "direct".into(), runs: direct, ..point.clone() },
            Point { target: "weir".into(), pool_size: Some(8), runs: vec![run(0, 1188.0)], ..point },
        ];
        let text = terminal(&experiment, Paint::PLAIN);
        assert!(text.contains("1,100") && text.contains("1,188") && text.contains("+8%"), "{text}");
        assert!(
            !text.contains("1,358") && text.contains("50 clients: round 2 counts for no figure"),
            "{text}"
        );
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
