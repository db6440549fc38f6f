//! What the person at the terminal sees while the lab works: headings, remarks and a progress bar. Where the
//! output is no terminal, the bar becomes a line now and then. Never mixes with results: those are printed whole.

use std::io::{IsTerminal, Write};

const BAR_CELLS: usize = 30;

/// The terminal, or the file that stands in for it.
#[derive(Debug)]
pub struct Screen {
    terminal: bool,
    /// Whether bars are worth a line where there is no terminal.
    tells: bool,
    /// Whether a bar stands on the present line.
    open: bool,
    /// The last quarter that was told where there is no terminal.
    told: Option<usize>,
}

impl Screen {
    /// Standard output.
    #[must_use]
    pub fn standard() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), tells: true, open: false, told: None }
    }

    /// Standard output; where it is no terminal, without bars: for a series of many short runs.
    #[must_use]
    pub fn terse() -> Self {
        Self { tells: false, ..Self::standard() }
    }

    /// A step that begins.
    pub fn step(&mut self, text: &str) {
        self.close();
        if self.terminal {
            println!("\x1b[1m▸ {text}\x1b[0m");
        } else {
            println!("▸ {text}");
        }
    }

    /// A remark below the step.
    pub fn remark(&mut self, text: &str) {
        self.close();
        println!("  {text}");
    }

    /// Draws the bar anew; `done` is between 0 and 1.
    pub fn progress(&mut self, done: f64, text: &str) {
        if self.terminal {
            print!("\r\x1b[K  {} {text}", bar(done));
            self.open = true;
            let _ = std::io::stdout().flush();
            return;
        }
        if !self.tells {
            return;
        }
        let quarter = cells(done, 4);
        if quarter > 0 && self.told.is_none_or(|told| quarter > told) {
            println!("  {} {text}", bar(done));
            self.told = Some(quarter);
        }
    }

    /// Removes the bar; the next thing is printed in its place.
    pub fn close(&mut self) {
        if self.open {
            print!("\r\x1b[K");
        }
        self.open = false;
        self.told = None;
        let _ = std::io::stdout().flush();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

fn bar(done: f64) -> String {
    let full = cells(done, BAR_CELLS);
    format!("[{}{}] {:3.0} %", "█".repeat(full), "·".repeat(BAR_CELLS - full), done.clamp(0.0, 1.0) * 100.0)
}

/// How many of `count` cells are full.
fn cells(done: f64, count: usize) -> usize {
    (1..=count).take_while(|cell| done * count as f64 + 1e-9 >= *cell as f64).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_never_overflows() {
        assert_eq!(cells(0.0, 30), 0);
        assert_eq!(cells(0.5, 30), 15);
        assert_eq!(cells(1.0, 30), 30);
        assert_eq!(cells(7.0, 30), 30);
        assert_eq!(cells(-1.0, 30), 0);
        assert_eq!(cells(f64::NAN, 30), 0);
        assert!(bar(1.5).ends_with("] 100 %"));
    }
}
