//! A session: what a server keeps models for, as long as it hears of it.

use crate::TinkerError;
use crate::client::{Client, Twice};
use crate::wire::{CreateSession, CreatedSession, OfSession, SDK_VERSION};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

/// A session that is kept alive until this value is dropped.
pub(crate) struct Session {
    pub id: String,
    /// Why the server knows it no more.
    ended: Arc<OnceLock<String>>,
    heartbeat: AbortHandle,
}

impl Session {
    /// Begins one, on the runtime that this is called on.
    pub async fn begin(client: &Client) -> Result<Self, TinkerError> {
        let body = CreateSession { tags: ["lemon"], sdk_version: SDK_VERSION };
        // One more session without a model is nothing to a server.
        let CreatedSession { session_id: id } = client.call("create_session", &body, Twice::Harmless).await?;
        let ended = Arc::new(OnceLock::new());
        let heartbeat = tokio::spawn(keep_alive(client.clone(), id.clone(), ended.clone())).abort_handle();
        Ok(Session { id, ended, heartbeat })
    }

    /// # Errors
    /// The server has said that it knows the session no more.
    pub fn check(&self) -> Result<(), TinkerError> {
        self.ended.get().map_or(Ok(()), |fact| Err(TinkerError::Ended(fact.clone())))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

/// Sends a sign of life again and again. One that is lost is nothing: the next one follows long before the session would end.
async fn keep_alive(client: Client, id: String, ended: Arc<OnceLock<String>>) {
    let mut ticks = interval(client.patience().heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let told = client.once::<Value>("session_heartbeat", &OfSession { session_id: &id }).await;
        if let Err(TinkerError::Refused { status: 404 | 410, detail, .. }) = told {
            ended.get_or_init(|| detail);
            return;
        }
    }
}
