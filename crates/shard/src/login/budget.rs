//! The bound on memory for logins in progress: each has a little for free, and all together a budget beyond that.
//!
//! Owns the counting. A password may be 64 KiB long, and its sender is not authenticated yet: without a common bound, any
//! peer that can connect could fill the memory.

use crate::ConnId;
use crate::core::Core;
use crate::login::Logins;

/// Bytes of a login that are not counted: every usual exchange, and tokens of the usual size.
const FREE_BYTES: u32 = 4 * 1024;
/// Bytes that the logins of one shard may have sent beyond that: over a hundred passwords of the longest kind.
const BUDGET_BYTES: u32 = 8 * 1024 * 1024;

/// The error for a login beyond the budget.
pub(crate) const SPENT: &str = "too many long passwords are being sent at once";

/// What logins in progress have sent beyond what each may.
#[derive(Default)]
pub(crate) struct LoginBudget {
    spent: u32,
}

impl LoginBudget {
    /// Counts bytes of a login that has sent `sent` before: the new sum, None if there is no room for it.
    fn spend(&mut self, sent: u32, bytes: usize) -> Option<u32> {
        let now = sent.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let spent = self.spent.saturating_add(charge(now) - charge(sent));
        if spent > BUDGET_BYTES {
            return None;
        }
        self.spent = spent;
        Some(now)
    }

    /// A login that has sent so much is over.
    fn give_back(&mut self, sent: u32) {
        self.spent = self.spent.saturating_sub(charge(sent));
    }

    pub(crate) fn spent(&self) -> u32 {
        self.spent
    }
}

impl Logins {
    /// Counts bytes of a login; false if there is no room for them.
    pub(crate) fn count_login_bytes(&mut self, core: &mut Core, conn: ConnId, bytes: usize) -> bool {
        let Some(client) = core.conns.client_mut(conn) else { return false };
        let Some(sent) = self.budget.spend(client.login_bytes, bytes) else { return false };
        client.login_bytes = sent;
        true
    }

    /// A login that has sent so much is over.
    pub(crate) fn forget_login_bytes(&mut self, sent: u32) {
        self.budget.give_back(sent);
    }
}

/// What counts of the bytes that one login has sent.
fn charge(sent: u32) -> u32 {
    sent.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_logins_are_free_and_large_ones_share_a_budget() {
        let mut budget = LoginBudget::default();
        assert_eq!(budget.spend(0, 4096), Some(4096));
        assert_eq!(budget.spent(), 0);
        let large = budget.spend(0, BUDGET_BYTES as usize).expect("there is room");
        assert_eq!(budget.spend(0, 3 * FREE_BYTES as usize), None, "the budget is spent");
        budget.give_back(large);
        assert_eq!(budget.spent(), 0);
    }
}
