//! Pools and servers, as routes and alerts need them: one place that asks the control thread for all that concerns them.
//!
//! Owns in which order it is asked: a change is made with what the server concerned says of itself. Never judges a change.

use std::sync::Arc;

use control::{
    Cluster, DATABASES, ExplainOutcome, PIN_TOTALS, POOLS, PoolChange, PoolOutcome, PoolSpec, SERVER_ERRORS,
    ServerInfo, cluster_id, clusters,
};
use settings::Config;

use crate::context::PanelContext;
use crate::control_client::{ControlClient, ControlError};
use crate::failure::Failure;
use crate::inventory::{ClusterView, Inventory, cluster};
use crate::pools_client::PoolsClient;

/// Asks for pools and servers, and for changes of them.
#[derive(Clone)]
pub(crate) struct PoolService {
    context: PanelContext,
    control_client: Arc<ControlClient>,
    pools: Arc<PoolsClient>,
}

impl PoolService {
    pub(crate) fn new(
        context: PanelContext,
        control_client: Arc<ControlClient>,
        pools: Arc<PoolsClient>,
    ) -> PoolService {
        PoolService { context, control_client, pools }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.context.config()
    }

    /// What is known of pools now.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn inventory(&self) -> Result<Inventory, ControlError> {
        let (pools, databases, failed, pinned) = tokio::try_join!(
            self.control_client.show(POOLS),
            self.control_client.show(DATABASES),
            self.control_client.show(SERVER_ERRORS),
            self.control_client.show(PIN_TOTALS),
        )?;
        Ok(Inventory::new(pools, &databases, &failed, &pinned))
    }

    /// What the server of a cluster says of itself, if it can be asked.
    pub(crate) async fn server_info(&self, inventory: &Inventory, cluster: &Cluster) -> Option<ServerInfo> {
        let login_candidates = inventory.login_candidates(&self.config(), cluster);
        self.pools.server_info(&cluster.id, login_candidates).await
    }

    /// Every cluster, each server asked.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn cluster_views(&self) -> Result<Vec<ClusterView>, ControlError> {
        let (inventory, config) = (self.inventory().await?, self.config());
        let mut views = Vec::new();
        for cluster in clusters(&config) {
            let server_info = self.server_info(&inventory, &cluster).await;
            views.push(ClusterView::new(&config, &inventory, cluster, server_info));
        }
        Ok(views)
    }

    /// Asks the server for its limits, then the control thread for the change, or for what it would be; gives what was known
    /// of pools before, too. With `may_name_servers` the pool's users may log in to servers that no entry leads to.
    ///
    /// # Errors
    /// Why the change is not made.
    pub(crate) async fn change(
        &self,
        change: PoolChange,
        preview: bool,
        may_name_servers: bool,
    ) -> Result<(Inventory, PoolOutcome), Failure> {
        let inventory = self.inventory().await?;
        let server = self.server_of(&inventory, &change).await;
        let outcome = self.pools.change(change, preview, server, may_name_servers).await?;
        Ok((inventory, outcome))
    }

    /// Deletes a pool.
    ///
    /// # Errors
    /// Why it stays.
    pub(crate) async fn delete(&self, name: String) -> Result<(), Failure> {
        self.pools.change(PoolChange::Delete(name), false, None, false).await.map(drop)
    }

    /// The plan of a statement.
    ///
    /// # Errors
    /// The control thread has not answered.
    pub(crate) async fn explain(
        &self,
        database: String,
        user: String,
        statement: String,
        generic: bool,
    ) -> Result<ExplainOutcome, Failure> {
        self.pools.explain(database, user, statement, generic).await
    }

    /// What the server says that a change concerns.
    async fn server_of(&self, inventory: &Inventory, change: &PoolChange) -> Option<ServerInfo> {
        let config = self.config();
        let id = match change {
            PoolChange::Create(PoolSpec { cluster: Some(id), .. }) => id.clone(),
            PoolChange::Create(_) => match &clusters(&config)[..] {
                [only] => only.id.clone(),
                _ => return None,
            },
            PoolChange::Update(spec) => cluster_id(config.databases.get(&spec.name)?),
            PoolChange::Delete(_) => return None,
        };
        self.server_info(inventory, &cluster(&config, &id)?).await
    }
}
