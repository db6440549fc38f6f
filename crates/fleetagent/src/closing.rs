//! The end of the process: whether PostgreSQL has none of its connections any more, so that other nodes need not find that out.

use std::collections::BTreeSet;

use fleet::{Backend, BudgetName};

/// What the end of the process knows of its connections.
#[derive(Debug, Default)]
pub(crate) enum Closing {
    /// It has not been asked for them.
    #[default]
    Unknown,
    /// Of some connections the backends are not known: they were being opened.
    Incomplete,
    /// All that there were when none could be opened any more.
    Own(BTreeSet<Backend>),
}

impl Closing {
    /// `servers`: how many connections there are.
    pub(crate) fn of(backends: &[Backend], servers: u32) -> Closing {
        match u32::try_from(backends.len()).is_ok_and(|count| count == servers) {
            true => Closing::Own(backends.iter().cloned().collect()),
            false => Closing::Incomplete,
        }
    }

    /// Whether these lists, of all of these budgets, have none of them.
    pub(crate) fn is_over(&self, budgets: &[BudgetName], lists: &[(BudgetName, Vec<Backend>)]) -> bool {
        let Closing::Own(own) = self else { return false };
        let is_gone = |budget: &BudgetName| {
            let list = lists.iter().find(|(name, _)| name == budget);
            list.is_some_and(|(_, backends)| !backends.iter().any(|backend| own.contains(backend)))
        };
        budgets.iter().all(is_gone)
    }
}

#[cfg(test)]
mod tests {
    use fleet::BudgetKind;

    use super::*;
    use crate::counters::budget;

    #[test]
    fn it_is_over_when_all_servers_say_that_none_of_its_backends_is_there() {
        let backend = |pid| Backend { server: "s".into(), pid };
        let budgets = [budget(BudgetKind::Database, "a", "", ""), budget(BudgetKind::User, "", "u", "")];
        let closing = Closing::of(&[backend(1), backend(2)], 2);
        let lists = |pid| [(budgets[0].clone(), vec![backend(3)]), (budgets[1].clone(), vec![backend(pid)])];
        assert!(closing.is_over(&budgets, &lists(4)));
        assert!(!closing.is_over(&budgets, &lists(2)));
        assert!(!closing.is_over(&budgets, &lists(4)[..1]), "one could not be asked");
        assert!(closing.is_over(&[], &[]));
        assert!(!Closing::of(&[backend(1)], 2).is_over(&[], &[]), "the second was being opened");
        assert!(!Closing::default().is_over(&[], &[]));
    }
}
