//! `lemon serve`: the API, spoken to as a client that knows nothing of LEMON would.

use crate::common::{Folder, PATIENCE, endpoint, wait_until};
use crate::served::{Served, chat, joined, read};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

const REPLY: &str = "Dear Ann,\n\nthis is a letter of several words.\n\nYours";
const LETTER: &str = "Write a letter to Ann.";

fn letters() -> FakeEndpoint {
    FakeEndpoint::start(Behaviour::text(REPLY)).unwrap()
}

/// Two agents that are both answered by the same text.
const TEAM: &str = "agents:\n  - {id: one, base: solver, capacity: small}\n  - {id: two, base: solver, capacity: small}\n\
                    answer: {by: vote, from: [one, two]}\n";

#[test]
fn a_question_is_answered_as_openai_would() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let response = served.chat(LETTER, json!({"user": "ann", "metadata": {"case": "7"}, "unknown_field": [1]})).ok();
    let body = response.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"], json!({"role": "assistant", "content": REPLY, "refusal": null}));
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    // The plain call is the whole team: what the endpoint counted is what is reported.
    let run = &folder.runs()[0];
    assert_eq!(body["usage"]["total_tokens"], run["tokens"]);
    assert_eq!(body["usage"]["completion_tokens"], REPLY.split_whitespace().count());
    let lemon = &body["lemon"];
    assert_eq!((&lemon["run_id"], &lemon["stop_reason"]), (&run["run_id"], &json!("answered")));
    let url = format!("http://{}/runs/{}", served.address, run["run_id"].as_str().unwrap());
    assert_eq!(lemon["url"].as_str().unwrap(), url);
    assert_eq!(response.header("x-lemon-run-id"), run["run_id"].as_str());
    assert_eq!(response.header("x-lemon-stop-reason"), Some("answered"));
    assert!(lemon["cost_usd"].as_f64().unwrap() > 0.0 && response.header("x-lemon-cost-usd").is_some());
    assert_eq!(endpoint.calls(), 1, "no more than one plain call");
    assert_eq!(served.counter("lemon_runs_started_total"), 1.0);
    assert_eq!(served.counter("lemon_runs_ended_total{reason=\"answered\"}"), 1.0);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn tokens_of_the_one_agent_are_streamed() {
    let endpoint = letters();
    let served_folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&served_folder, &[]);
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let response = served.chat(LETTER, more).ok();
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = response.events();
    assert_eq!(joined(&events, "content"), REPLY);
    let pieces = events.iter().filter(|event| event["choices"][0]["delta"]["content"].is_string()).count();
    assert!(pieces > 3, "{pieces} pieces");
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let last = &events[events.len() - 2];
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["lemon"]["stop_reason"], "answered");
    let usage = &events[events.len() - 1];
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &served_folder.runs()[0]["tokens"]));
}

#[test]
fn a_team_is_seen_at_work_and_its_answer_comes_when_it_is_decided() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "").file("teams/two.yaml", TEAM);
    let served = Served::start(&folder, &[]);
    let names = served.get("/v1/models").ok().json();
    let names: Vec<&str> = names["data"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["lemon", "lemon/two"]);
    served.get("/v1/models/lemon/two").ok();
    let events = served.chat("What is 2 + 2?", json!({"model": "lemon/two", "stream": true})).ok().events();
    let progress = joined(&events, "reasoning_content");
    assert!(progress.contains("A team of 2 agents") && progress.contains("one: done"), "{progress}");
    let answer = joined(&events, "content");
    let whole = served.chat("What is 2 + 2?", json!({"model": "lemon/two"})).answer();
    assert_eq!(answer, whole);
    assert!(answer.contains("Answer: "), "{answer}");
}

#[test]
fn what_a_request_says_reaches_the_model_or_is_refused() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let body = served.chat(LETTER, json!({"max_tokens": 3, "temperature": 0.5, "seed": 7})).ok().json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    let asked = endpoint.requests().pop().unwrap().body;
    let limit = asked.get("max_completion_tokens").or(asked.get("max_tokens"));
    assert_eq!((limit, &asked["temperature"]), (Some(&json!(3)), &json!(0.5)));
    assert_eq!(served.chat(LETTER, json!({"stop": ["several"]})).answer(), "Dear Ann,\n\nthis is a letter of ");
    let calls = endpoint.calls();
    for (more, param) in [
        (json!({"temperature": 3}), "temperature"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"n": 2}), "n"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
        (json!({"tools": [{"type": "function"}]}), "tools"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"response_format": {"type": "xml"}}), "response_format"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "tool", "content": "hm"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "messages[0].content"),
        (json!({"metadata": "x"}), "metadata"),
        (json!({"lemon": {"spec": "agents: nothing"}}), "lemon.spec"),
    ] {
        let response = served.chat(LETTER, more.clone());
        assert_eq!(response.status, 400, "{more}: {}", response.body);
        assert_eq!(response.json()["error"]["param"], param, "{}", response.body);
        assert_eq!(response.header("x-should-retry"), Some("false"));
    }
    for model in ["gpt-4", "lemon/none", "lemon/../secret", "lemon/policy:/etc", "lemon/policy:../x", ""] {
        served.chat(LETTER, json!({"model": model})).refused(404, Some("model_not_found"));
    }
    for body in ["", "{", "[]", "{\"model\": 1}", "null"] {
        let response = served.send("POST", "/v1/chat/completions", &[], body);
        assert_eq!(
            (response.status, &response.json()["error"]["type"]),
            (400, &json!("invalid_request_error")),
            "{body}"
        );
    }
    served.get("/nothing").refused(404, Some("not_found"));
    assert_eq!(served.get("/v1/chat/completions").status, 405);
    assert_eq!(endpoint.calls(), calls, "what is refused costs nothing");
}

#[test]
fn a_conversation_is_the_context_of_its_last_message() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let messages = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Her name is Ann."}]},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": LETTER},
    ]);
    served.chat("", json!({"messages": messages})).ok();
    let asked = endpoint.requests().pop().unwrap().body.to_string();
    for words in ["Be kind.", "User: Her name is Ann.", "Assistant: Noted.", LETTER] {
        assert!(asked.contains(words), "no {words:?} in {asked}");
    }
}

#[test]
fn json_is_answered_as_the_schema_says_or_not_at_all() {
    let replies =
        ["Sure:\n```json\n{\"n\": 3}\n```", "{\"n\": \"three\"}"].map(|text| FakeReply::Text(text.to_owned()));
    let endpoint = FakeEndpoint::start(Behaviour::script(replies)).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    assert_eq!(served.chat("How many?", format.clone()).answer(), "{\"n\": 3}");
    let refusal = served.chat("How many more?", format);
    let error = refusal.refused(422, Some("response_format_unmet"));
    assert!(error["message"].as_str().unwrap().contains("/n"), "{error}");
    assert!(refusal.header("x-lemon-run-id").is_some());
}

#[test]
fn responses_have_the_form_of_that_protocol() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let request = json!({"model": "lemon", "instructions": "Be kind.", "input": LETTER});
    let body = served.post("/v1/responses", &request).ok().json();
    assert_eq!((&body["object"], &body["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(body["output"][0]["content"][0]["text"], REPLY);
    assert_eq!(body["usage"]["total_tokens"], folder.runs()[0]["tokens"]);
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "Write another letter."}]}]);
    let stream = served.post("/v1/responses", &json!({"model": "lemon", "input": input, "stream": true})).ok();
    let data: Vec<Value> = stream
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let of = |kind: &str| data.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let text: String = of("response.output_text.delta").iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(text, REPLY);
    assert_eq!(of("response.completed")[0]["response"]["output"][0]["content"][0]["text"], REPLY);
    let numbers: Vec<u64> = data.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..data.len() as u64).collect::<Vec<_>>());
    served.post("/v1/responses", &json!({"model": "lemon", "input": []})).refused(400, None);
    let earlier = json!({"model": "lemon", "input": "x", "previous_response_id": "resp_1"});
    served.post("/v1/responses", &earlier).refused(400, Some("unsupported_parameter"));
}

#[test]
fn a_client_that_goes_cancels_its_run() {
    for stream in [false, true] {
        let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
        let folder = Folder::with_endpoint(&endpoint, "");
        let served = Served::start(&folder, &[]);
        let body = chat(LETTER, json!({"stream": stream})).to_string();
        let client = served.begin("POST", "/v1/chat/completions", &[], &body);
        wait_until("the model is asked", || endpoint.in_flight() == 1);
        drop(client);
        wait_until("the run is over", || served.counter("lemon_runs_under_way") == 0.0);
        assert_eq!(folder.runs()[0]["stop_reason"], "cancelled", "stream: {stream}");
        wait_until("the model is left alone", || endpoint.in_flight() == 0);
    }
}

#[test]
fn a_model_that_fails_is_told_of() {
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::status(400)])).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let refusal = served.chat(LETTER, json!({}));
    refusal.refused(502, Some("no_answer"));
    assert_eq!(refusal.header("x-should-retry"), Some("false"));
    let events = served.chat(LETTER, json!({"stream": true})).ok().events();
    assert_eq!(events.last().unwrap()["error"]["code"], "no_answer");
    let poor = json!({"lemon": {"budget_tokens": 1}});
    served.chat("Write a longer letter.", poor).refused(400, Some("run_budget_exceeded"));
}

#[test]
fn a_reply_that_breaks_off_is_not_told_twice() {
    let endpoint = FakeEndpoint::start(Behaviour::text(REPLY).fault_at(1, FakeReply::DropMidStream)).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let events = served.chat(LETTER, json!({"stream": true})).ok().events();
    // The same text came again: what was told is its beginning.
    assert_eq!(joined(&events, "content"), REPLY);
    let cut = FakeReply::CutAt { text: REPLY.to_owned(), bytes: 2_000, close: true };
    let other = [cut, FakeReply::Text("Something else in as many words as before.".into())];
    let endpoint = FakeEndpoint::start(Behaviour::script(other)).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let events = served.chat(LETTER, json!({"stream": true})).ok().events();
    assert_eq!(events.last().unwrap()["error"]["code"], "answer_replaced", "{events:?}");
}

#[test]
fn other_sites_and_names_are_kept_out() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &["--host", "lemon.example", "--origin", "https://chat.example"]);
    let status = |headers: &[(&str, &str)]| {
        served.send("POST", "/v1/chat/completions", headers, &chat(LETTER, json!({})).to_string()).status
    };
    assert_eq!(status(&[("host", "evil.example")]), 421);
    assert_eq!(status(&[("host", "lemon.example")]), 200);
    assert_eq!(status(&[("origin", "https://evil.example")]), 403);
    assert_eq!(status(&[("origin", "null")]), 403);
    assert_eq!(status(&[("origin", &format!("http://{}", served.address))]), 200);
    let foreign = served.send("OPTIONS", "/v1/chat/completions", &[("origin", "https://chat.example")], "");
    assert_eq!(foreign.status, 204);
    assert_eq!(foreign.header("access-control-allow-origin"), Some("https://chat.example"));
    let response = served.get("/healthz").ok();
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert!(response.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(endpoint.calls(), 1, "one letter is asked for once, and found on record");
}

#[test]
fn requests_have_limits() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &["--max-body-kb", "4", "--max-runs", "1"]);
    assert_eq!(served.chat(&"x".repeat(5_000), json!({})).status, 413);
    assert_eq!(served.send("GET", "/healthz", &[("x-long", &"x".repeat(60_000))], "").status, 431);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(served.send("GET", "/healthz", &many, "").status, 431);
    served.get("/healthz").ok();
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &["--max-runs", "1"]);
    let first = served.begin("POST", "/v1/chat/completions", &[], &chat(LETTER, json!({})).to_string());
    wait_until("the model is asked", || endpoint.in_flight() == 1);
    let refusal = served.chat("Another one.", json!({}));
    refusal.refused(429, Some("rate_limit_exceeded"));
    assert_eq!((refusal.header("retry-after"), refusal.header("x-should-retry")), (Some("1"), None));
    drop(first);
}

#[test]
fn a_run_has_a_time() {
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &["--timeout", "0.2"]);
    served.chat(LETTER, json!({})).refused(504, Some("run_timeout"));
    served.chat(LETTER, json!({"lemon": {"timeout_s": 0.1}})).refused(504, Some("run_timeout"));
}

#[test]
fn it_opens_on_the_bundled_models_without_any_configuration() {
    let folder = Folder::new();
    let served = Served::start(&folder, &[]);
    let answer = served.chat("Ana has 3 pens and buys 4 more. How many pens does she have?", json!({})).answer();
    assert!(answer.contains('7'), "{answer}");
    let refusal = served.chat("Write a poem.", json!({}));
    let error = refusal.refused(400, None);
    assert!(error["message"].as_str().unwrap().contains("arithmetic word problems"), "{error}");
    served.get("/readyz").ok();
    let api = served.get("/openapi.json").ok().json();
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/models", "/healthz", "/readyz", "/metrics"] {
        assert!(api["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn a_server_that_is_told_to_end_lets_runs_end() {
    let endpoint = FakeEndpoint::start(Behaviour::text(REPLY).per_token_ms(30)).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &[]);
    let stream = served.begin("POST", "/v1/chat/completions", &[], &chat(LETTER, json!({"stream": true})).to_string());
    wait_until("the model is asked", || endpoint.in_flight() == 1);
    served.tell_to_end();
    assert_eq!(joined(&read(stream).ok().events(), "content"), REPLY);
    assert_eq!(served.wait(), Some(0));
    assert_eq!(folder.runs()[0]["stop_reason"], "answered");
}

#[test]
fn what_does_not_end_in_time_is_cancelled_on_record() {
    let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::Hang])).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let served = Served::start(&folder, &["--grace", "0"]);
    let stream = served.begin("POST", "/v1/chat/completions", &[], &chat(LETTER, json!({})).to_string());
    wait_until("the model is asked", || endpoint.in_flight() == 1);
    assert_eq!(served.end(), Some(0));
    let line = BufReader::new(stream).lines().next().unwrap().unwrap();
    assert!(line.contains("503"), "{line}");
    assert_eq!(folder.runs()[0]["stop_reason"], "cancelled");
    let ran = folder.lemon(&["run", "--resume", "last", "--timeout", "0.1", "-q"]).code(1);
    assert!(ran.stderr.contains("time_budget"), "{}", ran.stderr);
}

#[test]
fn finished_runs_are_sent_to_a_collector() {
    let endpoint = letters();
    let folder = Folder::with_endpoint(&endpoint, "");
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let served = Served::start(&folder, &["--otlp", &url]);
    served.chat(LETTER, json!({})).ok();
    let (stream, _) = collector.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let line = BufReader::new(stream).lines().next().unwrap().unwrap();
    assert_eq!(line, "POST /v1/traces HTTP/1.1");
}
