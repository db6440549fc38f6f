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
    /// The same for a phone.
    pub(super) narrow: String,
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
            size::throughput(experiment, advice, &workload.name),
            size::latency(experiment, advice, &workload.name),
            load::latency(experiment, &workload.name),
            time::throughput(experiment, advice, &workload.name).into_iter().collect(),
        ];
        for (index, chart) in charts.iter().flatten().enumerate() {
            pictures.push(Picture {
                name: format!("{}-{}-{}-{}", place + 1, slug(&workload.name), index + 1, chart.sort),
                workload: workload.name.clone(),
                svg: chart.svg()?,
                narrow: chart.narrow_svg()?,
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
    use crate::record::{ExperimentKind, Point};

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
        experiment.question = ExperimentKind::Compare;
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
    fn a_size_picture_shows_the_medians_that_the_table_has() {
        let mut experiment = sample::experiment();
        // A lucky size, which smoothing would move away from what was measured.
        for (round, tps) in [1000.0, 5000.0, 5100.0, 5050.0, 5020.0].into_iter().enumerate() {
            let runs = experiment.points.iter_mut().filter(|point| {
                point.workload == "writes" && point.pool_size == Some(16) && point.offered.is_none()
            });
            runs.for_each(|point| point.runs[round].tps = tps);
        }
        let direct = experiment
            .points
            .iter_mut()
            .find(|point| point.workload == "writes" && point.target == "direct" && point.clients == 150);
        for run in &mut direct.expect("direct").runs {
            (run.ended, run.tps) = (crate::record::Ended::Whole, 1500.0);
        }
        let advice = advise(&experiment);
        let charts = size::throughput(&experiment, &advice, "writes");
        let lines: Vec<&str> = charts[0].lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(lines[..2], ["direct", "weir"]);
        assert!(
            charts[0].lines[0].is_level && charts[0].lines[0].points.iter().all(|point| point.1 == 1500.0)
        );
        assert_eq!(charts[0].lines[1].points[4], (4.0, 5020.0), "16 is two to the fourth");
        assert_eq!((charts[0].lines[1].band[4].1, charts[0].lines[1].band[4].2), (1000.0, 5100.0));
        let fit =
            advice.of("weir", "writes", 150).and_then(|series| series.curve.fit.clone()).expect("a law");
        assert!(
            fit.error > crate::advisor::POOR_FIT && lines.len() == 2,
            "a poor fit is not drawn: {lines:?}"
        );
        let reads = size::throughput(&experiment, &advice, "reads");
        assert_eq!(reads[0].lines.last().map(|line| line.label.as_str()), Some("model: scalability law"));
    }

    #[test]
    fn several_numbers_of_clients_have_a_picture_of_them_all() {
        let mut experiment = sample::experiment();
        let few =
            experiment.points.iter().filter(|point| point.pool_size.is_some() && point.offered.is_none());
        let few: Vec<Point> = few.map(|point| Point { clients: 40, ..point.clone() }).collect();
        experiment.points.extend(few);
        let charts = size::throughput(&experiment, &advise(&experiment), "writes");
        let sorts: Vec<&str> = charts.iter().map(|chart| chart.sort).collect();
        assert_eq!(sorts, ["size", "size", "sizes-by-clients"]);
        let labels: Vec<&str> = charts[2].lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(labels, ["40 clients", "150 clients"]);
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        for picture in drawn() {
            assert!(picture.narrow.contains("width=\"380\""), "{}", picture.narrow);
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
