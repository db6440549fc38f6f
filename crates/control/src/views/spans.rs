//! SHOW SPANS: the last requests that belong to sampled traces of their callers (`otlp_traces`); the panel's exporter reads the same rows.
//!
//! Weir's own.

use messages::{Cell, SpanRow};

use super::waits::MEASURED;
use super::{ViewContext, text_or_null};

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.spans.iter().map(row).collect()
}

fn row(row: &SpanRow) -> Vec<Cell> {
    let span = &row.span;
    let mut cells = vec![
        Cell::from(u64::from(row.shard)),
        Cell::Sum(row.number),
        hex(&span.trace_id).into(),
        hex(&span.parent_id).into(),
        (&*span.database).into(),
        (&*span.user).into(),
        Cell::Sum(span.end_us),
        Cell::Sum(span.took_us),
    ];
    cells.extend(MEASURED.map(|wait| Cell::Sum(span.waits.us(wait))));
    cells.push(u64::from(span.failed).into());
    cells.push(text_or_null(span.shape.as_ref().map(|shape| shape.text.clone())));
    cells
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, shown};
    use crate::views::example::of_shards;

    #[test]
    fn a_span_has_its_trace_and_its_waits() {
        let rows = shown(&Harness::new().show("SHOW SPANS", &of_shards));
        let trace = "0af7651916cd43dd8448eb211c80319c|b7ad6b7169203331";
        assert_eq!(rows, [format!("3|8|{trace}|app|ann|1795000000000000|1500|400|0|0|0|1|select ?")]);
    }
}
