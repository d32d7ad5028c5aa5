//! A client of NATS that sends again what others sent: jobs and results that come twice.

use async_nats::Message;
use async_nats::header::NATS_MESSAGE_ID;
use futures::StreamExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What was sent last, ready to be sent again. It ends with this value.
pub struct Again {
    wanted: Arc<AtomicU64>,
    sent: Arc<Mutex<[u64; 2]>>,
    end: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Again {
    /// Listens at this server.
    pub fn start(address: String) -> Again {
        let (wanted, sent, end) = (Arc::<AtomicU64>::default(), Arc::<Mutex<[u64; 2]>>::default(), Arc::default());
        let (mine, counts, over) = (wanted.clone(), sent.clone(), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(listen(&address, &mine, &counts, &over));
        });
        Again { wanted, sent, end, thread: Some(thread) }
    }

    /// Sends the next job and the next result twice.
    pub fn send(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
    }

    /// How many jobs and results were sent again.
    pub fn sent(&self) -> [u64; 2] {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.end.store(1, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Where it has failed, nothing was sent, and the counts say so.
            drop(thread.join());
        }
    }
}

async fn listen(address: &str, wanted: &AtomicU64, sent: &Mutex<[u64; 2]>, end: &AtomicU64) {
    let client = async_nats::ConnectOptions::new().retry_on_initial_connect().connect(address).await.unwrap();
    let mut jobs = client.subscribe("lemon.default.jobs.>").await.unwrap();
    let mut results = client.subscribe("lemon.default.session.*.done").await.unwrap();
    let mut due = [0, 0];
    let mut seen = 0;
    while end.load(Ordering::SeqCst) == 0 {
        let now = wanted.load(Ordering::SeqCst);
        due = due.map(|due| due + now - seen);
        seen = now;
        let (message, what): (Option<Message>, usize) = tokio::select! {
            message = jobs.next() => (message, 0),
            message = results.next() => (message, 1),
            () = tokio::time::sleep(Duration::from_millis(20)) => continue,
        };
        let Some(message) = message else { return };
        // What was sent again is not sent again.
        let is_copy = message.headers.as_ref().is_some_and(|headers| headers.get("Copy").is_some());
        if due[what] == 0 || is_copy {
            continue;
        }
        let mut headers = async_nats::HeaderMap::new();
        for (name, values) in message.headers.iter().flat_map(|headers| headers.iter()) {
            // With the same id, the server would drop it.
            if *name != NATS_MESSAGE_ID {
                values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
            }
        }
        headers.insert("Copy", "1");
        if client.publish_with_headers(message.subject.clone(), headers, message.payload.clone()).await.is_ok() {
            due[what] -= 1;
            sent.lock().unwrap_or_else(PoisonError::into_inner)[what] += 1;
        }
    }
}
