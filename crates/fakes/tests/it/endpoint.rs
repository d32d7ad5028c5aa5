//! The endpoint around its replies: keys, schedules, records, counts, its beginning and its end.

use crate::client::{Ended, client, post, post_with, request};
use futures::future::join_all;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};
use std::time::Duration;

/// The statuses of as many requests, one after another; request n says `n`.
async fn statuses(behaviour: Behaviour, requests: usize) -> Vec<u16> {
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let mut statuses = Vec::new();
    for number in 0..requests {
        statuses.push(post(&endpoint, &request(&number.to_string(), json!({}))).await.status);
    }
    statuses
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_key_is_required() {
    let endpoint = FakeEndpoint::start(Behaviour::text("ok").api_key("secret")).unwrap();
    for (key, expected) in [(None, 401), (Some("wrong"), 401), (Some("secret"), 200)] {
        let exchange = post_with(&client(), &endpoint, request("x", json!({})).to_string(), key).await;
        assert_eq!(exchange.status, expected, "{key:?}");
        if expected == 401 {
            let body: Value = serde_json::from_str(&exchange.body).unwrap();
            assert_eq!(body["error"]["code"], "invalid_api_key");
        }
    }
    let shown: Vec<_> = endpoint.requests().into_iter().map(|request| request.authorization).collect();
    assert_eq!(shown, [None, Some("Bearer wrong".to_owned()), Some("Bearer secret".to_owned())]);
    assert_eq!(client().get(format!("{}/models", endpoint.base_url())).send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn models_are_listed() {
    let endpoint =
        FakeEndpoint::start(Behaviour { models: vec!["a".into(), "b".into()], ..Behaviour::default() }).unwrap();
    let body = client().get(format!("{}/models", endpoint.base_url())).send().await.unwrap().text().await.unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let names: Vec<_> = body["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(endpoint.calls(), 0, "only completions count");
}

#[tokio::test]
async fn schedules() {
    let fault = || FakeReply::status(503);
    let scripted = Behaviour::script([FakeReply::status(429), fault(), FakeReply::Empty]);
    assert_eq!(statuses(scripted.clone(), 5).await, [429, 503, 200, 200, 200], "the last reply stays");
    assert_eq!(statuses(scripted.fault_at(1, fault()), 3).await, [503, 503, 200], "faults come before replies");
    assert_eq!(statuses(Behaviour::default().fault_every(2, fault()), 5).await, [200, 503, 200, 503, 200]);
    assert_eq!(statuses(Behaviour::default().fault_every(0, fault()), 2).await, [200, 200], "never");
    let every_odd = |request: &lemon_fakes::ChatRequest| match request.last("user") {
        "1" | "3" => FakeReply::status(500),
        _ => FakeReply::Empty,
    };
    assert_eq!(statuses(Behaviour::function(every_odd), 4).await, [200, 500, 200, 500]);
}

#[tokio::test]
async fn a_first_time_fault_spares_every_retry() {
    let endpoint = FakeEndpoint::start(Behaviour::text("ok").fault_first_time(FakeReply::status(429))).unwrap();
    for (message, expected) in [("a", 429), ("b", 429), ("b", 200), ("a", 200), ("a", 200)] {
        assert_eq!(post(&endpoint, &request(message, json!({}))).await.status, expected, "{message}");
    }
}

#[tokio::test]
async fn a_schema_is_refused_where_it_is_not_supported() {
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "team", "schema": {}}}});
    let endpoint = FakeEndpoint::start(Behaviour::text("ok").without_schema()).unwrap();
    let exchange = post(&endpoint, &request("x", format.clone())).await;
    let body: Value = serde_json::from_str(&exchange.body).unwrap();
    assert_eq!((exchange.status, &body["error"]["param"]), (400, &json!("response_format")));
    assert_eq!(post(&endpoint, &request("x", json!({"response_format": null}))).await.status, 200);
    let endpoint = FakeEndpoint::start(Behaviour::text("ok")).unwrap();
    assert_eq!(post(&endpoint, &request("x", format)).await.status, 200);
}

#[tokio::test]
async fn a_bad_request_is_refused_and_counted() {
    let endpoint = FakeEndpoint::start(Behaviour::default()).unwrap();
    for body in
        ["", "{", "[]", "{\"model\":\"m\"}", "{\"model\":\"m\",\"messages\":[{\"content\":1,\"role\":\"user\"}]}"]
    {
        assert_eq!(post_with(&client(), &endpoint, body.to_owned(), None).await.status, 400, "{body}");
    }
    assert_eq!(endpoint.calls(), 5);
    assert_eq!(endpoint.most_calls_of_a_key(), 0, "no conversation among them");
}

#[tokio::test]
async fn requests_are_on_record() {
    let endpoint = FakeEndpoint::start(Behaviour::default()).unwrap();
    let parts = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]);
    let bodies = [
        request("a b", json!({"seed": 7})),
        request("a b", json!({"seed": 8})),
        json!({"model": "other", "messages": [{"role": "user", "content": parts}]}),
        request("c", json!({})),
    ];
    for body in &bodies {
        assert_eq!(post(&endpoint, body).await.status, 200);
    }
    let seen = endpoint.requests();
    assert_eq!(seen.iter().map(|request| &request.body).collect::<Vec<_>>(), bodies.iter().collect::<Vec<_>>());
    assert_eq!(seen.iter().map(|request| request.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(seen.is_sorted_by_key(|request| request.at));
    let calls = endpoint.calls_by_key();
    assert_eq!(seen.iter().map(|request| calls[&request.key.unwrap()]).collect::<Vec<_>>(), [3, 3, 3, 1]);
    assert_eq!((endpoint.calls(), endpoint.most_calls_of_a_key()), (4, 3));
}

#[tokio::test]
async fn without_record_calls_are_still_counted() {
    let endpoint = FakeEndpoint::start(Behaviour::default().without_record()).unwrap();
    post(&endpoint, &request("x", json!({}))).await;
    assert_eq!((endpoint.requests().len(), endpoint.calls(), endpoint.most_calls_of_a_key()), (0, 1, 1));
}

#[tokio::test]
async fn calls_at_the_same_time_are_counted() {
    const CALLS: usize = 40;
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let client = client();
    let ask = |number: usize| post_with(&client, &endpoint, request(&number.to_string(), json!({})).to_string(), None);
    let ended = join_all((0..CALLS).map(ask)).await;
    assert!(ended.iter().all(|exchange| exchange.ended == Ended::Silent));
    until(|| endpoint.in_flight() == 0).await; // The client gave up, and the endpoint noticed.
    assert_eq!((endpoint.peak_in_flight(), endpoint.calls()), (CALLS, CALLS as u64));
    post(&endpoint, &request("x", json!({}))).await;
    assert_eq!(endpoint.peak_in_flight(), CALLS);
}

#[tokio::test]
async fn a_stream_is_in_flight_until_its_end() {
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::HangMidStream])).unwrap();
    let body = request("x", json!({"stream": true})).to_string();
    let url = format!("{}/chat/completions", endpoint.base_url());
    let mut response = client().post(url).body(body).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    assert_eq!(endpoint.in_flight(), 1);
    drop(response);
    until(|| endpoint.in_flight() == 0).await;
}

#[test]
fn its_end_closes_connections_that_hang() {
    let mut endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = format!("{}/chat/completions", endpoint.base_url());
    let call = runtime.spawn(client().post(&url).body(request("x", json!({})).to_string()).send());
    runtime.block_on(until(|| endpoint.in_flight() == 1));
    endpoint.stop();
    assert!(runtime.block_on(call).unwrap().is_err());
    assert_eq!((endpoint.calls(), endpoint.in_flight()), (1, 0), "what was seen can still be read");
    endpoint.stop();
}

#[tokio::test]
async fn it_comes_back_on_its_port() {
    let endpoint = FakeEndpoint::start(Behaviour::text("before")).unwrap();
    let (port, url) = (endpoint.port(), endpoint.base_url());
    assert_eq!(post(&endpoint, &request("x", json!({}))).await.status, 200);
    assert!(FakeEndpoint::start_at(port, Behaviour::default()).is_err(), "the port is taken");
    drop(endpoint);
    assert!(client().get(format!("{url}/models")).send().await.is_err(), "no server is there");
    let endpoint = FakeEndpoint::start_at(port, Behaviour::text("after")).unwrap();
    assert_eq!(endpoint.base_url(), url);
    assert!(post(&endpoint, &request("x", json!({}))).await.body.contains("after"));
}
