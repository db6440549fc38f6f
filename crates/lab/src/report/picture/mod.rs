//! Pictures of an experiment: what stands in each of them. Throughput against clients, throughput and latency against pool
//! size, latency against offered load, throughput over time. Reads the record and the advice; how it is drawn is `chart`'s.

mod chart;
mod clients;
mod colour;
mod load;
mod png;
mod size;
mod time;

pub(super) use colour::{INK, PAPER, RULE, SOFT, TARGETS};

use crate::advisor::Advice;
use crate::error::Result;
use crate::record::Experiment;

/// A picture, ready to be written.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// Its file's name without an ending: letters, digits and `-` only.
    pub(super) name: String,
    /// The workload that it belongs to.
    pub(super) workload: String,
    /// The picture.
    pub(super) svg: String,
}

impl Picture {
    /// The same at twice its size as PNG.
    pub(super) fn png(&self) -> Result<Vec<u8>> {
        png::render(&self.svg)
    }
}

/// All pictures, workload by workload.
pub(super) fn pictures(experiment: &Experiment, advice: &Advice) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for (place, workload) in experiment.workloads.iter().enumerate() {
        let charts = [
            clients::throughput(experiment, &workload.name).into_iter().collect(),
            size::throughput(advice, &workload.name),
            size::latency(experiment, advice, &workload.name),
            load::latency(experiment, &workload.name),
            time::throughput(experiment, advice, &workload.name).into_iter().collect(),
        ];
        for (index, chart) in charts.iter().flatten().enumerate() {
            pictures.push(Picture {
                name: format!("{}-{}-{}-{}", place + 1, slug(&workload.name), index + 1, chart.sort),
                workload: workload.name.clone(),
                svg: chart.svg()?,
            });
        }
    }
    Ok(pictures)
}

/// A name as part of a file's name.
fn slug(name: &str) -> String {
    let letters = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
    let slug: String = letters.take(40).collect();
    let slug = slug.trim_matches('-').to_owned();
    if slug.is_empty() { "workload".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{advise, sample};
    use crate::record::Question;

    fn drawn() -> Vec<Picture> {
        let mut experiment = sample::experiment();
        experiment.workloads[0].name = "<it's> ../mine".to_owned();
        for point in experiment.points.iter_mut().filter(|point| point.workload == "writes") {
            point.workload = "<it's> ../mine".to_owned();
        }
        pictures(&experiment, &advise(&experiment)).expect("pictures")
    }

    #[test]
    fn every_question_has_its_picture() {
        let names: Vec<String> = drawn().into_iter().map(|picture| picture.name).collect();
        assert_eq!(
            names,
            [
                "1-it-s-----mine-1-size",
                "1-it-s-----mine-2-latency",
                "1-it-s-----mine-3-load",
                "1-it-s-----mine-4-time",
                "2-reads-1-size",
                "2-reads-2-latency",
                "2-reads-3-load",
                "2-reads-4-time",
            ]
        );
    }

    #[test]
    fn a_comparison_is_drawn_against_its_clients_with_every_size() {
        let mut experiment = sample::experiment();
        experiment.question = Question::Compare;
        let pictures = pictures(&experiment, &advise(&experiment)).expect("pictures");
        let names: Vec<&str> = pictures.iter().map(|picture| picture.name.as_str()).collect();
        assert_eq!(
            names,
            ["1-writes-1-clients", "1-writes-2-load", "1-writes-3-time", "2-reads-1-load", "2-reads-2-time"]
        );
        let drawn = &pictures[0].svg;
        assert!(drawn.contains("direct from") && drawn.contains("weir, pool 64 from"), "{drawn}");
        assert!(pictures[2].svg.contains("weir, pool 8, 150 clients"), "no size is singled out");
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        for picture in drawn() {
            assert!(!picture.svg.contains("<it") && picture.svg.starts_with("<svg "), "{}", picture.svg);
            assert!(picture.svg.contains("role=\"img\""), "{}", picture.svg);
        }
    }

    #[test]
    fn a_png_has_ink_on_it_without_any_font_of_the_machine() {
        let png = drawn()[0].png().expect("a PNG");
        assert!(png.starts_with(b"\x89PNG") && png.len() > 20_000, "{} bytes", png.len());
    }

    #[test]
    fn names_of_files_are_tame() {
        assert_eq!(
            (slug("../../etc").as_str(), slug("Ä").as_str(), slug("TPC-B").as_str()),
            ("etc", "workload", "tpc-b")
        );
    }
}
