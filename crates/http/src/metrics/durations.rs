//! Histograms in seconds, and errors by code: Weir's own metrics.
//! Never decides where the bounds are: that is what a [`Distribution`] has.

use telemetry::Histogram;

use super::family::{Distribution, Family, Kind, Page, Unit, number};
use crate::table::{Row, Table};

/// A measure of SHOW HISTOGRAMS and what it is.
const MEASURES: [(&str, &str); 3] = [
    ("wait", "How long clients waited for a server connection, also those that had not to."),
    ("transaction", "How long transactions took."),
    ("query", "How long queries took; those that were answered in one go share their time evenly."),
];

pub(super) fn write(page: &mut dyn Page, histograms: &Table, errors: &Table) {
    for (measure, help) in MEASURES {
        let name = format!("weir.{measure}.duration");
        page.family(&Family::new(&name, Kind::Histogram, Unit::Seconds, help));
        histograms.iter().filter(|row| row.text("measure") == Some(measure)).for_each(|row| pool(page, row));
    }
    let help = "Errors that clients were told of, by SQLSTATE; at most 64 codes of a database.";
    page.family(&Family::new("weir.errors", Kind::Counter, Unit::Number("error"), help));
    for row in errors.iter() {
        let text = |column| row.text(column).unwrap_or_default();
        let labels = [("database", text("database")), ("sqlstate", text("sqlstate"))];
        page.sample(&labels, number(row.number("count")));
    }
}

fn pool(page: &mut dyn Page, row: Row<'_>) {
    let text = |column| row.text(column).unwrap_or_default();
    let labels = [("database", text("database")), ("user", text("user"))];
    if let Ok(histogram) = text("buckets").parse::<Histogram>() {
        page.distribution(&labels, &Distribution::new(&histogram, row.number("sum_us")));
    }
}
