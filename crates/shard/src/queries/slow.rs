//! Requests that took long (`log_slow_queries`): what the log says of them.
//!
//! Owns the line's text. A request's time is what its client waited for and what the server took; while the client did not read, the server is not counted.

use std::fmt::Write as _;

use telemetry::{ServerWait, Wait};

use super::tracker::Request;
use crate::time::milliseconds;

/// Of a statement the line has so much.
const SHOWN_BYTES: usize = 1_024;

/// The line, if the request took `least_us` or more from when its client sent it; the server had it for `server_us`.
pub(super) fn line(request: &Request, server_us: u64, least_us: u64) -> Option<String> {
    let reader_us = request.waits.us(Wait::Reader).min(server_us);
    let took_us = request.took_us(server_us);
    (took_us >= least_us).then(|| written(request, took_us, server_us - reader_us))
}

fn written(request: &Request, took_us: u64, server_us: u64) -> String {
    let mut line = format!("slow query: {} ms (server {}", milliseconds(took_us), milliseconds(server_us));
    write_server_waits(&mut line, request, server_us);
    for wait in [Wait::Queue, Wait::Connect, Wait::Settings, Wait::Reader] {
        let us = request.waits.us(wait);
        if us > 0 {
            let _ = write!(line, ", {} {}", wait.word(), milliseconds(us));
        }
    }
    line.push_str(if request.failed { "; failed): " } else { "): " });
    if let Some(shape) = request.shapes.first() {
        line.push_str(&shape.text[..shape.text.floor_char_boundary(SHOWN_BYTES)]);
    }
    if request.shapes.len() > 1 {
        let _ = write!(line, " (and {} more)", request.shapes.len() - 1);
    }
    line
}

/// The parts of the server's time in which it was found waiting. They are samples: together never more than that time.
fn write_server_waits(line: &mut String, request: &Request, server_us: u64) {
    let Some(waits) = &request.server_waits else { return };
    let mut rest_us = server_us;
    let mut separator = " [";
    for wait in ServerWait::ALL {
        let us = waits.us(wait).min(rest_us);
        if us > 0 {
            let _ = write!(line, "{separator}{} {}", wait.word(), milliseconds(us));
            (separator, rest_us) = (", ", rest_us - us);
        }
    }
    if separator == ", " {
        line.push(']');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use telemetry::queries::QueryFingerprint;

    use super::*;

    fn request(waits: &[(Wait, u64)]) -> Request {
        let shape = QueryFingerprint { number: 1, text: "select ?".into(), parameterized: None };
        let mut request = Request { shapes: vec![Arc::new(shape)], ..Request::default() };
        waits.iter().for_each(|(wait, us)| request.waits.add(*wait, *us));
        request
    }

    #[test]
    fn all_parts_add_up() {
        let waits =
            [(Wait::Queue, 100_000), (Wait::Connect, 20_050), (Wait::Settings, 950), (Wait::Reader, 30_000)];
        let mut slow = request(&waits);
        let expected = "slow query: 521.0 ms (server 370.0, queue 100.0, connect 20.0, settings 0.9, reader 30.0): select ?";
        assert_eq!(line(&slow, 400_000, 500_000).as_deref(), Some(expected));
        assert_eq!(line(&slow, 400_000, 521_001), None);
        slow.failed = true;
        slow.shapes.push(Arc::clone(&slow.shapes[0]));
        let text = line(&slow, 400_000, 0).expect("a line");
        assert!(text.ends_with("; failed): select ? (and 1 more)"), "{text}");
    }

    #[test]
    fn what_its_server_waited_for_is_part_of_the_servers_time() {
        let mut slow = request(&[(Wait::Queue, 100_000)]);
        let waits = slow.server_waits.get_or_insert_default();
        waits.add(ServerWait::Lock, 350_000);
        waits.add(ServerWait::Other, 90_000);
        let expected = "slow query: 500.0 ms (server 400.0 [lock 350.0, other 50.0], queue 100.0): select ?";
        assert_eq!(line(&slow, 400_000, 0).as_deref(), Some(expected));
        let expected = "slow query: 100.0 ms (server 0.0, queue 100.0): select ?";
        assert_eq!(line(&slow, 0, 0).as_deref(), Some(expected));
    }

    #[test]
    fn one_that_asked_nothing_has_its_time_alone() {
        let mut nothing = request(&[]);
        nothing.shapes.clear();
        assert_eq!(line(&nothing, 1_234, 1).as_deref(), Some("slow query: 1.2 ms (server 1.2): "));
    }
}
