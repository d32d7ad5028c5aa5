//! `lemon bench`: that it runs; what it measures is not for tests.

use crate::common::{Folder, finish};
use std::io::{BufRead, BufReader};

#[test]
fn the_fake_endpoint_says_where_it_is() {
    let folder = Folder::with_pair();
    let mut process = folder.start(&["bench", "fake-endpoint", "--latency-ms", "1"]);
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let run = ["run", "What is it?", "--spec", "pair.yaml", "--base-url", url.trim(), "--model", "fake", "--json"];
    let ran = folder.lemon(&run);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(ran.ok().json()["answer"], "42");
}

#[test]
fn one_measurement() {
    let folder = Folder::new();
    let endpoint = crate::common::endpoint();
    let args = ["bench", "scenario", "--base-url", &endpoint.base_url(), "--teams", "4", "--width", "2", "--warm", "1"];
    let measured = folder.lemon(&args).ok().json();
    assert_eq!((&measured["teams"], &measured["width"]), (&4.into(), &2.into()));
    assert_eq!(endpoint.calls(), 5 * 8, "four teams, and one to warm up");
}

#[test]
fn the_server_beside_its_endpoint() {
    let folder = Folder::new();
    let args = ["bench", "api", "--requests", "8", "--width", "4", "--latency-ms", "5", "--connections", "3", "--json"];
    let found = finish(&args, folder.start(&args)).ok().json();
    let loads = found["loads"].as_array().unwrap();
    assert_eq!(
        loads.iter().map(|load| load["what"].as_str().unwrap()).collect::<Vec<_>>(),
        ["the endpoint itself", "lemon serve"]
    );
    assert!(loads.iter().all(|load| load["p50_ms"].as_f64().unwrap() >= 5.0), "{found}");
    assert!(found["idle"]["with_them_mib"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn the_whole_table() {
    let folder = Folder::new();
    let args = ["bench", "teams", "--teams", "4", "--width", "2", "--latency-ms", "5", "--json"];
    let table = finish(&args, folder.start(&args)).ok().json();
    let rows = table["teams"].as_array().unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row["ratio"].is_number() && row["makespan_s"].is_number()),
        "{table}"
    );
    assert!(table["parse_and_validate_64_agents_us"].is_number());
}
