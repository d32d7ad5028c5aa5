//! The cluster that the System page and the metrics show. Nothing of it can be changed here.

use lemon_cluster::{Access, Link, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long the cluster has to say how it is. What comes later is for the next that asks.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long what it said counts: pages and scrapes share it.
const FRESH: Duration = Duration::from_secs(2);

/// Watches a cluster: asks it when a page or a scrape does.
pub struct ClusterWatch(Arc<Watched>);

struct Watched {
    access: Access,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    link: Option<Link>,
    said: Option<(Instant, Result<Status, String>)>,
}

impl ClusterWatch {
    /// The cluster at this address. It is not asked yet.
    pub fn new(access: Access) -> Self {
        ClusterWatch(Arc::new(Watched { access, known: Mutex::default() }))
    }

    /// Its addresses, without secrets.
    pub fn address(&self) -> String {
        self.0.access.shown()
    }

    /// How it is, or why that cannot be said.
    pub async fn status(&self) -> Result<Status, String> {
        // It goes on when this is not waited for any more.
        let asked = tokio::spawn(self.0.clone().ask());
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => Err(format!("asking it broke off: {error}")),
            Err(_) => Err(format!("NATS at {} does not answer within {} s", self.address(), PATIENCE.as_secs_f64())),
        }
    }
}

impl Watched {
    async fn ask(self: Arc<Self>) -> Result<Status, String> {
        let mut known = self.known.lock().await;
        if let Some((at, said)) = &known.said
            && at.elapsed() < FRESH
        {
            return said.clone();
        }
        let said = self.read(&mut known.link).await;
        known.said = Some((Instant::now(), said.clone()));
        said
    }

    /// Connects where it has to. A connection that was lost comes back by itself.
    async fn read(&self, link: &mut Option<Link>) -> Result<Status, String> {
        let link = match link {
            Some(link) => link,
            None => {
                let new = Link::connect(&self.access).await.map_err(|error| error.to_string())?;
                link.insert(new)
            }
        };
        Status::read(link).await.map_err(|error| error.to_string())
    }
}
