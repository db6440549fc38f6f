//! The bound on memory for logins in progress: each has a little for free, and all together a budget beyond that.
//!
//! Owns the counting. A password may be 64 KiB long, and its sender is not authenticated yet: without a common bound, any
//! peer that can connect could fill the memory.

use crate::ConnId;
use crate::state::ShardState;

/// Bytes of a login that are not counted: every usual exchange, and tokens of the usual size.
const FREE_BYTES: u32 = 4 * 1024;
/// Bytes that the logins of one shard may have sent beyond that: over a hundred passwords of the longest kind.
const BUDGET_BYTES: u32 = 8 * 1024 * 1024;

/// The error for a login beyond the budget.
pub(crate) const SPENT: &str = "too many long passwords are being sent at once";

impl ShardState {
    /// Counts bytes of a login; false if there is no room for them.
    pub(crate) fn count_login_bytes(&mut self, conn: ConnId, bytes: usize) -> bool {
        let spent = self.login_bytes;
        let Some(client) = self.client(conn) else { return false };
        let sent = client.login_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let spent = spent.saturating_add(charge(sent) - charge(client.login_bytes));
        if spent > BUDGET_BYTES {
            return false;
        }
        client.login_bytes = sent;
        self.login_bytes = spent;
        true
    }

    /// A login that has sent so much is over.
    pub(crate) fn forget_login_bytes(&mut self, sent: u32) {
        self.login_bytes = self.login_bytes.saturating_sub(charge(sent));
    }
}

/// What counts of the bytes that one login has sent.
fn charge(sent: u32) -> u32 {
    sent.saturating_sub(FREE_BYTES)
}
