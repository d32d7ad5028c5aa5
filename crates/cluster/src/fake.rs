//! Fake workers, for measurements of the coordinator: they take real jobs from the real queue and give every one the same
//! answer at once, without running a team.

use crate::error::{ClusterError, jetstream};
use crate::link::{Link, PRIORITIES};
use crate::wire::{DoneHead, JOB_HEADER, Job, written};
use async_nats::HeaderMap;
use futures::StreamExt;
use lemon_trace::{Header, VERSION};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// So many fake workers, until `stop`. Each result is this list of events, as lines of JSON.
///
/// # Errors
/// The server cannot be used.
pub async fn fake_workers(
    link: &Link,
    workers: usize,
    events: Arc<Vec<String>>,
    stop: &CancellationToken,
) -> Result<(), ClusterError> {
    let slots = Arc::new(Semaphore::new(workers));
    let consumer = link.consumer(PRIORITIES[1]).await?;
    while !stop.is_cancelled() {
        let most = slots.available_permits().min(256);
        if most == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let mut batch = consumer.fetch().max_messages(most).messages().await.map_err(jetstream)?;
        let mut found = false;
        while let Some(Ok(message)) = batch.next().await {
            found = true;
            let (link, events, permit) = (link.clone(), events.clone(), slots.clone().try_acquire_owned());
            tokio::spawn(async move {
                if let Ok(job) = serde_json::from_slice::<Job>(&message.payload) {
                    answer(&link, job, &events).await;
                }
                // A job that comes again is answered again.
                let _ = message.ack().await;
                drop(permit);
            });
        }
        if !found {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(())
}

async fn answer(link: &Link, job: Job, events: &[String]) {
    let header = Header {
        version: VERSION,
        run_id: job.run_id,
        task_id: job.task_id,
        question: job.question,
        started_at_ms: 0,
        seed: job.seed,
        workers: "fake".to_owned(),
    };
    let head = DoneHead { job: job.id.clone(), header, events: events.len(), graded: None, bits: None };
    let mut body = written(&head);
    for event in events {
        body.push('\n');
        body.push_str(event);
    }
    let mut headers = HeaderMap::new();
    headers.insert(JOB_HEADER, job.id.as_str());
    let subject = link.subject(&format!("session.{}.done", job.session));
    // A measurement in which results get lost ends in a time-out of its own.
    let _ = link.client.request_with_headers(subject, headers, body.into()).await;
}
