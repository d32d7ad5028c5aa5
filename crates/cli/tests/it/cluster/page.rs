//! The cluster as the application and Prometheus show it.

use super::{Workers, with};
use crate::common::{Folder, wait_until};
use crate::served::Served;
use lemon_fakes::NatsServer;

#[test]
fn the_system_page_and_the_metrics_show_the_cluster() {
    let Some(server) = NatsServer::start() else { return };
    let (folder, address) = (Folder::new(), server.address());
    let workers = Workers::start(&folder, address.clone(), 2);
    // Programs that no sandbox grades here: nothing is given up.
    folder.lemon(&with(super::EVAL, &["--cluster", &address])).ok();
    let served = Served::start(&folder, &["--workers", "bundled", "--nats", &address]);
    // What was said counts for a moment.
    let page = || served.get("/system").ok().body;
    wait_until("both workers are shown", || page().contains("<td>0 of 2</td>"));
    let text = page();
    for words in ["<h2>Cluster</h2>", &address, "<dd>2</dd>", "of 4 busy", "0 queued, 0 running", "Runs a second"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    assert!(!text.contains("Runs given up"), "{text}");
    wait_until("all runs are counted", || {
        let metrics = served.get("/metrics").ok().body;
        let done = metrics.lines().filter(|line| line.starts_with("lemon_cluster_done_total{"));
        let done: u64 = done.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        done == 96 && metrics.contains("lemon_cluster_up 1\n") && metrics.contains("lemon_cluster_workers 2\n")
    });
    drop(workers);
    drop(server);
    wait_until("it says that the cluster is away", || page().contains("not to be seen"));
    wait_until("the metrics say so too", || served.get("/metrics").ok().body.contains("lemon_cluster_up 0\n"));
}

#[test]
fn a_cluster_that_was_never_there_is_told_in_a_line() {
    let folder = Folder::new();
    let served = Served::start(&folder, &["--workers", "bundled", "--nats", "nats://user:secret-word@127.0.0.1:9"]);
    let page = served.get("/system").ok().body;
    assert!(page.contains("not to be seen") && page.contains("NATS at …@127.0.0.1:9"), "{page}");
    assert!(!page.contains("secret-word") && page.contains("<h2>Models</h2>"), "{page}");
    assert!(served.get("/metrics").ok().body.contains("lemon_cluster_up 0\n"));
    // Without a cluster there is no word of one.
    let alone = Served::start(&folder, &["--workers", "bundled"]);
    assert!(!alone.get("/system").ok().body.contains("<h2>Cluster</h2>"));
    assert!(!alone.get("/metrics").ok().body.contains("lemon_cluster"));
}
