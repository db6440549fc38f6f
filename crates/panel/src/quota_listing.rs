//! SHOW QUOTAS as the API lists it: rows that are filtered, sorted, and picked a page at a time while they arrive.
//! Never asks for them, and never knows which resources there are: their words and figures are passed on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use control::QuotaColumn;
use quota::{Limit, Measure, Rules, Subject, SubjectKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::failure::Failure;
use crate::table::ViewRow;
use crate::time::rfc3339;

/// The page's length where none is asked for, and the longest.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

/// The furthest page: rows before it are kept while it is picked.
const MAX_SKIPPED: usize = 100_000;

/// Which rows, and from where.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct QuotasQuery {
    /// Of this kind: `user`, `group`, `database` or `application_name`.
    subject: Option<String>,
    /// Of exactly this name.
    name: Option<String>,
    /// Whose name has this in it.
    search: Option<String>,
    /// Of this resource.
    resource: Option<String>,
    /// Of this period; `none` for resources that have none.
    period: Option<String>,
    /// In this state: `within`, `soft`, `grace` or `hard`; `over` for whichever is above a limit.
    state: Option<String>,
    /// What the rows are sorted by: `subject` (the usual: as SHOW QUOTAS has them), `name`, `resource`, `used`, `share` (of the hard limit, else of the soft
    /// one), `soft`, `hard` (largest first), `state` (worst first), `grace` or `ends` (soonest first); the other way round with a `-` before it.
    sort: Option<String>,
    /// The number of rows, up to 1,000.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<usize>,
}

/// What the figures of a resource are.
#[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuotaUnit {
    /// A number of things.
    Number,
    /// Seconds.
    Seconds,
    /// Bytes; in a change K, M, G or T may be behind a figure.
    Bytes,
}

impl QuotaUnit {
    /// By what the file takes: a resource that is not known here has a unit, too.
    pub(crate) fn of(measure: &str) -> QuotaUnit {
        let takes_units = Rules::read(format!("user x {measure} hard=1K").as_bytes()).is_ok();
        let resource = measure.split('/').next().unwrap_or(measure);
        match (takes_units, resource.ends_with("seconds")) {
            (true, _) => QuotaUnit::Bytes,
            (false, true) => QuotaUnit::Seconds,
            (false, false) => QuotaUnit::Number,
        }
    }
}

/// What a subject has used of a resource, and how much of it it may use.
#[derive(Clone, Debug, Serialize, ToSchema, PartialEq, Eq)]
pub(crate) struct QuotaView {
    /// `user`, `group`, `database` or `application_name`.
    subject: String,
    name: String,
    /// `connections`, `server_seconds`, `queries`, `bytes`, `storage`, `temp_files`.
    resource: String,
    /// `hour`, `day` or `month`; null where the resource has none.
    #[schema(required)]
    period: Option<String>,
    /// Resource and period, as `quotas_file` has them: `queries/day`.
    measure: String,
    unit: QuotaUnit,
    /// At all nodes of a fleet that share quotas (`fleet_limits`).
    used: u64,
    /// How much of that was used at other nodes, as far as it is known here.
    external: u64,
    /// 0 is none.
    soft: u64,
    /// 0 is none.
    hard: u64,
    /// How long the soft limit may be exceeded; 0 does not end; null where no line says so.
    #[schema(required)]
    grace_seconds: Option<u64>,
    /// RFC 3339; null where no grace time runs.
    #[schema(required)]
    grace_ends: Option<String>,
    /// RFC 3339; null where the resource has no period.
    #[schema(required)]
    period_ends: Option<String>,
    /// `within`, `soft` (above the soft limit), `grace` (the grace time is over) or `hard`.
    state: String,
    /// The limits are of a line of its own; else those of the default of its kind.
    has_own_limits: bool,
}

impl QuotaView {
    pub(crate) fn of(row: ViewRow<'_, QuotaColumn>, rules: &Rules) -> QuotaView {
        let time = |column| row.text(column).map(|time| rfc3339(Some(time)));
        let measure = measure(row);
        let limits = limits(row, &measure, rules);
        QuotaView {
            subject: row.owned(QuotaColumn::Subject),
            name: row.owned(QuotaColumn::Name),
            resource: row.owned(QuotaColumn::Resource),
            period: row.text(QuotaColumn::Period).map(str::to_owned),
            unit: QuotaUnit::of(&measure),
            measure,
            used: row.number(QuotaColumn::Used),
            external: row.number(QuotaColumn::External),
            soft: row.number(QuotaColumn::Soft),
            hard: row.number(QuotaColumn::Hard),
            grace_seconds: limits.map(|(limit, _)| limit.grace_s),
            grace_ends: time(QuotaColumn::GraceEnds),
            period_ends: time(QuotaColumn::PeriodEnds),
            state: row.owned(QuotaColumn::State),
            has_own_limits: limits.is_some_and(|(_, is_own)| is_own),
        }
    }
}

/// Resource and period, as `quotas_file` has them.
pub(crate) fn measure(row: ViewRow<'_, QuotaColumn>) -> String {
    let resource = row.text(QuotaColumn::Resource).unwrap_or_default();
    row.text(QuotaColumn::Period).map_or_else(|| resource.to_owned(), |period| format!("{resource}/{period}"))
}

/// The limit that counts for a row, and whether it is of a line of the subject's own.
fn limits(row: ViewRow<'_, QuotaColumn>, measure: &str, rules: &Rules) -> Option<(Limit, bool)> {
    let kind = SubjectKind::of(row.text(QuotaColumn::Subject)?)?;
    let measure = Measure::read(measure).ok()?;
    let own = rules.own_limit(&Subject::named(kind, row.text(QuotaColumn::Name)?), measure);
    let default = || rules.own_limit(&Subject::default_of(kind), measure);
    own.map(|limit| (limit, true)).or_else(|| default().map(|limit| (limit, false)))
}

impl QuotasQuery {
    fn takes(&self, row: ViewRow<'_, QuotaColumn>) -> bool {
        let is = |wanted: &Option<String>, column| {
            wanted.as_ref().is_none_or(|text| text.is_empty() || row.text(column) == Some(text))
        };
        let name = row.text(QuotaColumn::Name).unwrap_or_default();
        let is_named = self.name.as_ref().is_none_or(|wanted| wanted == name);
        let is_found =
            self.search.as_ref().is_none_or(|part| name.to_lowercase().contains(&part.to_lowercase()));
        let is_period = match self.period.as_deref() {
            Some("none") => row.is_null(QuotaColumn::Period),
            _ => is(&self.period, QuotaColumn::Period),
        };
        let is_state = match self.state.as_deref() {
            Some("over") => row.text(QuotaColumn::State) != Some("within"),
            _ => is(&self.state, QuotaColumn::State),
        };
        let is_of = is(&self.subject, QuotaColumn::Subject) && is(&self.resource, QuotaColumn::Resource);
        is_of && is_named && is_found && is_period && is_state
    }
}

/// Picks the rows of a page, in whatever order they arrive.
pub(crate) struct QuotaPage<'a> {
    wanted: &'a QuotasQuery,
    order: SortOrder,
    rules: &'a Rules,
    skipped: usize,
    limit: usize,
    picked: BTreeMap<(SortKey, usize), QuotaView>,
    arrived: usize,
    total: usize,
}

/// A page: its rows, the cursor of the next one, and how many rows there are in all.
pub(crate) struct PickedQuotas {
    pub(crate) rows: Vec<QuotaView>,
    pub(crate) next_cursor: Option<usize>,
    pub(crate) total: usize,
}

impl<'a> QuotaPage<'a> {
    /// An empty page.
    ///
    /// # Errors
    /// The order is none.
    pub(crate) fn new(wanted: &'a QuotasQuery, rules: &'a Rules) -> Result<QuotaPage<'a>, Failure> {
        Ok(QuotaPage {
            wanted,
            order: SortOrder::read(wanted.sort.as_deref().unwrap_or_default())?,
            rules,
            // Rows change their places between two pages: a cursor is how many come before.
            skipped: wanted.cursor.unwrap_or(0).min(MAX_SKIPPED),
            limit: wanted.limit.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS),
            picked: BTreeMap::new(),
            arrived: 0,
            total: 0,
        })
    }

    /// Takes the next row of SHOW QUOTAS.
    pub(crate) fn take(&mut self, row: ViewRow<'_, QuotaColumn>) {
        let place = self.arrived;
        self.arrived += 1;
        if !self.wanted.takes(row) {
            return;
        }
        self.total += 1;
        let key = (self.order.key(row, place), place);
        if self.picked.len() >= self.skipped + self.limit {
            if self.picked.last_key_value().is_some_and(|(last, _)| *last < key) {
                return;
            }
            self.picked.pop_last();
        }
        self.picked.insert(key, QuotaView::of(row, self.rules));
    }

    /// What was picked.
    pub(crate) fn finish(self) -> PickedQuotas {
        let end = self.skipped + self.limit;
        let next_cursor = (end < self.total && end <= MAX_SKIPPED).then_some(end);
        PickedQuotas {
            rows: self.picked.into_values().skip(self.skipped).collect(),
            next_cursor,
            total: self.total,
        }
    }
}

/// What rows are sorted by, and whether the other way round.
#[derive(Clone, Copy)]
struct SortOrder {
    by: fn(ViewRow<'_, QuotaColumn>, usize) -> Rank,
    is_reversed: bool,
}

/// A row's place by one column: a number, then a text.
type Rank = (u64, String);

/// All keys of a listing are of one kind.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Forward(Rank),
    Backward(Reverse<Rank>),
}

impl SortOrder {
    fn read(text: &str) -> Result<SortOrder, Failure> {
        let (word, is_reversed) = text.strip_prefix('-').map_or((text, false), |word| (word, true));
        let by: fn(ViewRow<'_, QuotaColumn>, usize) -> Rank = match word {
            "" | "subject" => |_, place| (place as u64, String::new()),
            "name" => |row, _| (0, row.owned(QuotaColumn::Name)),
            "resource" => |row, _| (0, measure(row)),
            "used" => |row, _| largest(row.number(QuotaColumn::Used)),
            "soft" => |row, _| largest(row.number(QuotaColumn::Soft)),
            "hard" => |row, _| largest(row.number(QuotaColumn::Hard)),
            "share" => |row, _| largest(share(row)),
            "state" => |row, _| largest(severity(row)),
            "grace" => |row, _| soonest(row.text(QuotaColumn::GraceEnds)),
            "ends" => |row, _| soonest(row.text(QuotaColumn::PeriodEnds)),
            _ => {
                let words = "subject, name, resource, used, share, soft, hard, state, grace, ends";
                return Err(Failure::invalid("sort", format!("sort is one of {words}")));
            }
        };
        Ok(SortOrder { by, is_reversed })
    }

    fn key(self, row: ViewRow<'_, QuotaColumn>, place: usize) -> SortKey {
        let rank = (self.by)(row, place);
        if self.is_reversed { SortKey::Backward(Reverse(rank)) } else { SortKey::Forward(rank) }
    }
}

fn largest(number: u64) -> Rank {
    (u64::MAX - number, String::new())
}

/// Rows without a time come last.
fn soonest(time: Option<&str>) -> Rank {
    time.map_or((1, String::new()), |time| (0, time.to_owned()))
}

/// How bad a state is. One that is not known here is as bad as the worst.
fn severity(row: ViewRow<'_, QuotaColumn>) -> u64 {
    match row.text(QuotaColumn::State) {
        Some("within") => 0,
        Some("soft") => 1,
        Some("grace") => 2,
        _ => 3,
    }
}

/// Parts in a million of the hard limit, or of the soft one where there is no other.
pub(crate) fn share(row: ViewRow<'_, QuotaColumn>) -> u64 {
    let [used, soft, hard] = [QuotaColumn::Used, QuotaColumn::Soft, QuotaColumn::Hard]
        .map(|column| u128::from(row.number(column)));
    let limit = if hard > 0 { hard } else { soft };
    (used * 1_000_000).checked_div(limit).map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{ViewTable, rows_of};
    use messages::Cell;

    fn table() -> ViewTable<QuotaColumn> {
        let row = |name: &'static str, period: Option<&'static str>, used, hard, state: &'static str| {
            vec![
                (QuotaColumn::Subject, Cell::from("user")),
                (QuotaColumn::Name, Cell::from(name)),
                (QuotaColumn::Resource, Cell::from(if period.is_some() { "queries" } else { "connections" })),
                (QuotaColumn::Period, period.map_or(Cell::Null, Cell::from)),
                (QuotaColumn::Used, Cell::Sum(used)),
                (QuotaColumn::Hard, Cell::Sum(hard)),
                (QuotaColumn::State, Cell::from(state)),
            ]
        };
        let rows = [
            row("alice", None, 3, 9, "within"),
            row("alice", Some("day"), 50, 50, "hard"),
            row("Bob", Some("day"), 70, 100, "soft"),
            row("carol", Some("day"), 0, 0, "within"),
        ];
        let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
        rows_of(&rows)
    }

    fn picked(query: QuotasQuery) -> (Vec<String>, Option<usize>, usize) {
        let rules = Rules::default();
        let mut page = QuotaPage::new(&query, &rules).expect("an order");
        table().iter().for_each(|row| page.take(row));
        let PickedQuotas { rows, next_cursor, total } = page.finish();
        (rows.into_iter().map(|row| format!("{} {}", row.name, row.measure)).collect(), next_cursor, total)
    }

    fn names(query: QuotasQuery) -> Vec<String> {
        picked(query).0
    }

    #[test]
    fn rows_are_filtered_by_all_that_is_asked() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(names(QuotasQuery { name: text("alice"), ..Default::default() }).len(), 2);
        assert_eq!(names(QuotasQuery { search: text("BO"), ..Default::default() }), ["Bob queries/day"]);
        assert_eq!(names(QuotasQuery { period: text("none"), ..Default::default() }), ["alice connections"]);
        let over = QuotasQuery { state: text("over"), ..Default::default() };
        assert_eq!(names(over), ["alice queries/day", "Bob queries/day"]);
        let both = QuotasQuery { state: text("within"), resource: text("queries"), ..Default::default() };
        assert_eq!(names(both), ["carol queries/day"]);
        assert!(names(QuotasQuery { subject: text("group"), ..Default::default() }).is_empty());
    }

    #[test]
    fn pages_follow_each_other_in_every_order() {
        for (sort, names) in [
            ("", ["alice connections", "alice queries/day", "Bob queries/day", "carol queries/day"]),
            ("-subject", ["carol queries/day", "Bob queries/day", "alice queries/day", "alice connections"]),
            ("share", ["alice queries/day", "Bob queries/day", "alice connections", "carol queries/day"]),
            ("state", ["alice queries/day", "Bob queries/day", "alice connections", "carol queries/day"]),
            ("used", ["Bob queries/day", "alice queries/day", "alice connections", "carol queries/day"]),
        ] {
            let page = |cursor| {
                let sort = Some(sort.to_owned());
                picked(QuotasQuery { sort, limit: Some(3), cursor, ..Default::default() })
            };
            let (first, next, total) = page(None);
            assert_eq!((&first[..], next, total), (&names.map(str::to_owned)[..3], Some(3), 4), "{sort}");
            assert_eq!(page(next), (vec![names[3].to_owned()], None, 4), "{sort}");
        }
        assert!(
            QuotaPage::new(
                &QuotasQuery { sort: Some("x".to_owned()), ..Default::default() },
                &Rules::default()
            )
            .is_err()
        );
    }

    #[test]
    fn figures_have_the_unit_of_their_resource() {
        let units = ["connections", "queries/day", "server_seconds/hour", "temp_files"].map(QuotaUnit::of);
        assert_eq!(units, [QuotaUnit::Number, QuotaUnit::Number, QuotaUnit::Seconds, QuotaUnit::Bytes]);
    }

    #[test]
    fn limits_are_of_the_subjects_own_line_or_the_default() {
        let rules = Rules::read(
            b"user default queries/day hard=9 grace=1h\nuser alice queries/day hard=50 grace=2h\n",
        );
        let rules = rules.expect("rules");
        let views: Vec<QuotaView> = table().iter().map(|row| QuotaView::of(row, &rules)).collect();
        let grace: Vec<_> = views.iter().map(|view| (view.grace_seconds, view.has_own_limits)).collect();
        assert_eq!(grace, [(None, false), (Some(7_200), true), (Some(3_600), false), (Some(3_600), false)]);
    }
}
