//! What the figures say, in sentences: for the foot of the table and for the page. Good news and bad news by the
//! same rule: a difference below three percent is none, a loss is called a loss and gets its reason.

use crate::demo::report::Report;
use crate::demo::runs::Run;
use crate::figures::{change, or_dash, short, whole};

/// Below this, two runs are even: one run a row cannot tell them apart.
const EVEN: f64 = 0.03;

/// The sentences, in the order of the runs.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let runs = &report.runs;
    let mut sentences = vec![admission(&runs.many_direct, &runs.many_pooled)];
    sentences.push(compared("At 50 clients", &runs.few_direct, &runs.few_pooled, report));
    let got_in = format!("At 150 clients (direct: the {} that got in)", runs.many_direct.served());
    sentences.push(compared(&got_in, &runs.many_direct, &runs.many_pooled, report));
    sentences.push(size(report));
    if is_loss(&runs.few_direct, &runs.few_pooled) || is_loss(&runs.many_direct, &runs.many_pooled) {
        sentences.push(reason(report));
    }
    sentences
}

fn admission(direct: &Run, pooled: &Run) -> String {
    let words = direct.fatal.as_deref().map(|words| format!(" ({words})")).unwrap_or_default();
    let failed = pooled.measured.outcome.summary.as_ref().map_or(0, |summary| summary.failed);
    let through = match pooled.measured.outcome.complaints.first() {
        None => format!("all {} served, {failed} transactions failed", pooled.served()),
        Some(line) => {
            format!("{} of {} served, {failed} transactions failed; {line}", pooled.served(), pooled.asked)
        }
    };
    format!(
        "{} clients without a pool: {} refused{words}, and pgbench 14 and later stops right there. Through the pool: \
         {through}.",
        direct.asked, direct.refused,
    )
}

fn compared(when: &str, direct: &Run, pooled: &Run, report: &Report) -> String {
    let (Some(without), Some(with)) = (direct.measured.tps(), pooled.measured.tps()) else {
        return format!("{when}: no figures.");
    };
    let verdict = match with / without - 1.0 {
        gain if gain > EVEN => "the pool wins",
        gain if gain < -EVEN => "the pool loses",
        _ => "even",
    };
    format!(
        "{when}: {} TPS direct, {} TPS through a pool of {} ({}): {verdict}.",
        whole(without),
        whole(with),
        report.pool_size,
        change(without, with)
    )
}

fn size(report: &Report) -> String {
    let right = report.runs.many_pooled.measured.tps();
    let largest = report.runs.many_largest.measured.tps();
    let gain = largest.zip(right).map_or_else(|| "-".to_owned(), |(from, to)| change(from, to));
    format!(
        "What the right size is worth: 150 clients over a pool of 97 make {} TPS, over a pool of {} {} TPS ({gain}).",
        or_dash(largest, whole),
        report.pool_size,
        or_dash(right, whole),
    )
}

fn is_loss(direct: &Run, pooled: &Run) -> bool {
    let tps = direct.measured.tps().zip(pooled.measured.tps());
    tps.is_some_and(|(without, with)| with < without * (1.0 - EVEN))
}

fn reason(report: &Report) -> String {
    let run = &report.runs.few_pooled.measured;
    format!(
        "Why a pool can lose here: pgbench, PostgreSQL and the pooler share this machine's {} cores, so every transaction \
         also pays for the pooler's own CPU time ({} of the machine's {} µs a transaction at 50 clients), and there \
         is no network between them whose waiting a pool could fill. With clients on other machines neither holds.",
        report.machine.cores,
        or_dash(run.pooler_us(), short),
        or_dash(run.machine_us(), short),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::sample;

    #[test]
    fn a_loss_is_called_a_loss_and_explained() {
        let all = sentences(&sample([3447.0, 3029.0, 2738.0, 2900.0, 2400.0])).join("\n");
        assert!(all.contains(
            "At 50 clients: 3,447 TPS direct, 2,900 TPS through a pool of 20 (-16%): the pool loses"
        ));
        assert!(all.contains("Why a pool can lose here"), "{all}");
        assert!(all.contains("over a pool of 20 2,738 TPS (+14%)"), "{all}");
    }

    #[test]
    fn a_gain_needs_no_excuse() {
        let all = sentences(&sample([175.0, 258.0, 344.0, 175.0, 300.0])).join("\n");
        assert!(all.contains("(+33%): the pool wins"), "{all}");
        assert!(all.contains("(±0%): even"), "{all}");
        assert!(!all.contains("Why a pool can lose"), "{all}");
    }

    #[test]
    fn errors_through_the_pool_are_not_kept_quiet() {
        let mut report = sample([1.0; 5]);
        let complaints = &mut report.runs.many_pooled.measured.outcome.complaints;
        complaints.push("error: client 7 script 0 aborted in command 5".to_owned());
        let all = sentences(&report).join("\n");
        assert!(all.contains("149 of 150 served, 0 transactions failed; error: client 7"), "{all}");
    }

    #[test]
    fn the_refused_are_counted_in_the_servers_words() {
        let all = sentences(&sample([1.0; 5])).join("\n");
        assert!(all.contains("53 refused (FATAL:  no <slots>)"), "{all}");
    }
}
