//! One run of one subject, as numbers, and the figures that reports and bars are made of. A figure that a run
//! cannot have is `None`, never a zero.

use std::path::PathBuf;

use crate::full::account::Cost;

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Transaction,
    Connection,
    Gigabyte,
    Client,
}

/// What came of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Transactions, connections, or bytes / 10^9.
    pub(super) units: f64,
    /// Units per second.
    pub(super) rate: Option<f64>,
    pub(super) mean_ms: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) cost: Cost,
    /// p99 of the same active clients without the idle ones.
    pub(super) alone_p99_ms: Option<f64>,
    /// Resident memory with few and with many idle clients, and for each further one.
    pub(super) few_kib: Option<f64>,
    pub(super) many_kib: Option<f64>,
    pub(super) client_kib: Option<f64>,
    /// What a server or the generator complained about: such a run is not to be trusted.
    pub(super) complaints: Vec<String>,
    /// Raw logs of the run, by their names in the result's directory.
    pub(super) logs: Vec<PathBuf>,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Rate,
    /// The pooler's CPU time for a unit: microseconds, seconds for a gigabyte.
    Cpu,
    CpuUser,
    CpuSystem,
    /// The whole machine's.
    Machine,
    Mean,
    P50,
    P99,
    Voluntary,
    Involuntary,
    Resident,
    Proportional,
    AloneP99,
    /// p99 among idle clients over p99 alone.
    Crowding,
    FewKib,
    ManyKib,
    ClientKib,
}

impl Figure {
    /// Its value in a run.
    pub(super) fn of(self, sample: &Sample, unit: Unit) -> Option<f64> {
        let each = |total: f64| (sample.units > 0.0).then(|| total / sample.units);
        let scale = if unit == Unit::Gigabyte { 1e-6 } else { 1.0 };
        let cost = &sample.cost;
        match self {
            Self::Rate => sample.rate,
            Self::Cpu => each(cost.pooler?.total_us() * scale),
            Self::CpuUser => each(cost.pooler?.user_us * scale),
            Self::CpuSystem => each(cost.pooler?.system_us * scale),
            Self::Machine => each(cost.machine_us * scale),
            Self::Mean => sample.mean_ms,
            Self::P50 => sample.p50_ms,
            Self::P99 => sample.p99_ms,
            Self::Voluntary => each(cost.switches?.voluntary),
            Self::Involuntary => each(cost.switches?.involuntary),
            Self::Resident => Some(cost.memory?.resident_kib),
            Self::Proportional => Some(cost.memory?.proportional_kib),
            Self::AloneP99 => sample.alone_p99_ms,
            Self::Crowding => Some(sample.p99_ms? / sample.alone_p99_ms?),
            Self::FewKib => sample.few_kib,
            Self::ManyKib => sample.many_kib,
            Self::ClientKib => sample.client_kib,
        }
    }

    /// Its key in the JSON.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Cpu => "pooler_cpu",
            Self::CpuUser => "pooler_cpu_user",
            Self::CpuSystem => "pooler_cpu_system",
            Self::Machine => "machine_cpu",
            Self::Mean => "mean_ms",
            Self::P50 => "p50_ms",
            Self::P99 => "p99_ms",
            Self::Voluntary => "voluntary_switches",
            Self::Involuntary => "involuntary_switches",
            Self::Resident => "resident_kib",
            Self::Proportional => "proportional_kib",
            Self::AloneP99 => "alone_p99_ms",
            Self::Crowding => "p99_over_alone",
            Self::FewKib => "few_clients_kib",
            Self::ManyKib => "many_clients_kib",
            Self::ClientKib => "kib_per_client",
        }
    }

    /// The column header.
    pub(super) fn title(self, unit: Unit) -> &'static str {
        match (self, unit) {
            (Self::Rate, Unit::Transaction | Unit::Client) => "TPS",
            (Self::Rate, Unit::Connection) => "connections/s",
            (Self::Rate, Unit::Gigabyte) => "GB/s",
            (Self::Cpu, Unit::Gigabyte) => "pooler s/GB",
            (Self::Cpu, _) => "pooler µs",
            (Self::CpuUser, _) => "user",
            (Self::CpuSystem, _) => "system",
            (Self::Machine, Unit::Gigabyte) => "machine s/GB",
            (Self::Machine, _) => "machine µs",
            (Self::Mean, _) => "mean ms",
            (Self::P50, _) => "p50 ms",
            (Self::P99, _) => "p99 ms",
            (Self::Voluntary, _) => "switches: own",
            (Self::Involuntary, _) => "forced",
            (Self::Resident, _) => "RSS KiB",
            (Self::Proportional, _) => "PSS KiB",
            (Self::AloneP99, _) => "p99 alone ms",
            (Self::Crowding, _) => "p99 / alone",
            (Self::FewKib, _) => "few: KiB",
            (Self::ManyKib, _) => "many: KiB",
            (Self::ClientKib, _) => "KiB a client",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full::account::Memory;
    use lab::cpu::Spent;

    #[test]
    fn figures_are_for_one_unit() {
        let pooler = Some(Spent { user_us: 1e6, system_us: 3e6 });
        let memory = Some(Memory { resident_kib: 5000.0, proportional_kib: 4000.0 });
        let cost = Cost { pooler, machine_us: 8e6, switches: None, memory };
        let sample =
            Sample { units: 2.0, p99_ms: Some(6.0), alone_p99_ms: Some(3.0), cost, ..Sample::default() };
        let of = |figure: Figure, unit| figure.of(&sample, unit);
        assert_eq!(of(Figure::Cpu, Unit::Transaction), Some(2e6));
        assert_eq!(of(Figure::Cpu, Unit::Gigabyte), Some(2.0));
        assert_eq!(of(Figure::CpuUser, Unit::Gigabyte), Some(0.5));
        assert_eq!(of(Figure::Machine, Unit::Connection), Some(4e6));
        assert_eq!(of(Figure::Crowding, Unit::Transaction), Some(2.0));
        assert_eq!(of(Figure::Resident, Unit::Client), Some(5000.0));
        assert_eq!(of(Figure::Voluntary, Unit::Transaction), None);
        assert_eq!(Figure::Cpu.of(&Sample::default(), Unit::Transaction), None);
    }
}
