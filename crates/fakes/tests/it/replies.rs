//! Every reply of the fake endpoint, as a client sees it on the wire.

use crate::client::{Ended, Exchange, post, request};
use futures::future::join;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};

/// Asks an endpoint that has this one reply, and gives what came of it in one line.
async fn outcome(reply: FakeReply, stream: bool) -> String {
    let endpoint = FakeEndpoint::start(Behaviour::script([reply])).unwrap();
    summary(&post(&endpoint, &request("two words", json!({"stream": stream}))).await)
}

/// `status, how it ended: content finish-reason usage` of a reply that follows the protocol as far as it goes.
fn summary(exchange: &Exchange) -> String {
    let Exchange { status, ended, .. } = exchange;
    let read = if exchange.content_type == "text/event-stream" { read_stream } else { read_json };
    let content = match exchange.content_type.as_str() {
        "application/json" | "text/event-stream" => read(&exchange.body).unwrap_or_else(|fault| fault),
        other => other.to_owned(),
    };
    format!("{status} {ended:?}: {content}")
}

fn read_json(body: &str) -> Result<String, String> {
    let body: Value = serde_json::from_str(body).map_err(|_| "no JSON".to_owned())?;
    let Some(choice) = body["choices"].get(0) else { return Err("no choice".to_owned()) };
    let called = if choice["message"]["tool_calls"].is_array() { " and a tool call" } else { "" };
    let (content, finish) = (&choice["message"]["content"], choice["finish_reason"].as_str().unwrap_or("unfinished"));
    Ok(format!("{content}{called}, {finish}, {}", tokens(&body["usage"])))
}

fn read_stream(body: &str) -> Result<String, String> {
    let (mut content, mut called, mut finish, mut usage, mut done) = (None, "", "unfinished", Value::Null, "not done");
    for event in body.split_terminator("\n\n") {
        let data = event.strip_prefix("data: ").ok_or("no event")?;
        if data == "[DONE]" {
            done = "done";
            continue;
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| "no JSON".to_owned())?;
        assert_eq!(chunk["object"], "chat.completion.chunk");
        if !chunk["usage"].is_null() {
            usage = chunk["usage"].clone();
        }
        let Some(choice) = chunk["choices"].get(0) else { continue };
        if let Some(more) = choice["delta"]["content"].as_str() {
            content.get_or_insert_with(String::new).push_str(more);
        }
        if choice["delta"]["tool_calls"].is_array() {
            called = " and a tool call";
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            finish = ["stop", "length", "tool_calls"].into_iter().find(|known| *known == reason).unwrap();
        }
    }
    Ok(format!("{}{called}, {finish}, {}, {done}", json!(content), tokens(&usage)))
}

fn tokens(usage: &Value) -> String {
    match (usage["prompt_tokens"].as_i64(), usage["completion_tokens"].as_i64()) {
        (Some(prompt), Some(completion)) => format!("{prompt}+{completion} tokens"),
        _ => "no tokens".to_owned(),
    }
}

async fn check(reply: FakeReply, whole: &str, stream: &str) {
    let outcomes = join(outcome(reply.clone(), false), outcome(reply.clone(), true)).await;
    assert_eq!(outcomes, (whole.to_owned(), stream.to_owned()), "{reply:?}, not streamed and streamed");
}

#[tokio::test]
async fn proper_replies() {
    let text = || "It is\n 4.".to_owned();
    check(
        FakeReply::Text(text()),
        r#"200 Whole: "It is\n 4.", stop, 2+3 tokens"#,
        r#"200 Whole: "It is\n 4.", stop, 2+3 tokens, done"#,
    )
    .await;
    check(FakeReply::Empty, r#"200 Whole: "", stop, 2+0 tokens"#, r#"200 Whole: "", stop, 2+0 tokens, done"#).await;
    check(
        FakeReply::Truncated(text()),
        r#"200 Whole: "It is\n 4.", length, 2+3 tokens"#,
        r#"200 Whole: "It is\n 4.", length, 2+3 tokens, done"#,
    )
    .await;
    check(
        FakeReply::NoUsage(text()),
        r#"200 Whole: "It is\n 4.", stop, no tokens"#,
        r#"200 Whole: "It is\n 4.", stop, no tokens, done"#,
    )
    .await;
    check(
        FakeReply::WrongUsage(text(), json!({"prompt_tokens": -7, "completion_tokens": 900_000})),
        r#"200 Whole: "It is\n 4.", stop, -7+900000 tokens"#,
        r#"200 Whole: "It is\n 4.", stop, -7+900000 tokens, done"#,
    )
    .await;
}

#[tokio::test]
async fn replies_without_text() {
    check(FakeReply::NoChoices, "200 Whole: no choice", "200 Whole: null, unfinished, 2+0 tokens, done").await;
    check(FakeReply::NullContent, "200 Whole: null, stop, 2+0 tokens", r#"200 Whole: null, stop, 2+0 tokens, done"#)
        .await;
    check(
        FakeReply::ToolCallsInsteadOfText,
        "200 Whole: null and a tool call, tool_calls, 2+0 tokens",
        r#"200 Whole: null and a tool call, tool_calls, 2+0 tokens, done"#,
    )
    .await;
}

#[tokio::test]
async fn broken_replies() {
    check(FakeReply::Garbage, "200 Whole: no JSON", "200 Whole: no event").await;
    check(FakeReply::GarbageChunk, "200 Whole: no JSON", "200 Whole: no JSON").await;
    check(FakeReply::HtmlError(502), "502 Whole: text/html; charset=utf-8", "502 Whole: text/html; charset=utf-8")
        .await;
    check(FakeReply::DropConnection, "0 Broken: ", "0 Broken: ").await;
    check(FakeReply::Hang, "0 Silent: ", "0 Silent: ").await;
    let half = "\"A fake reply, made\", unfinished, no tokens, not done";
    check(FakeReply::CutBody, "200 Broken: no JSON", &format!("200 Whole: {half}")).await;
    check(FakeReply::DropMidStream, "200 Broken: no JSON", &format!("200 Broken: {half}")).await;
    check(FakeReply::HangMidStream, "200 Silent: no JSON", &format!("200 Silent: {half}")).await;
}

#[tokio::test]
async fn a_status_with_its_headers() {
    let busy = FakeReply::Status { code: 429, retry_after: Some("7".to_owned()), body: "{\"error\":1}".to_owned() };
    let endpoint = FakeEndpoint::start(Behaviour::script([busy, FakeReply::status(503)])).unwrap();
    let first = post(&endpoint, &request("x", json!({}))).await;
    assert_eq!((first.status, first.retry_after.as_deref()), (429, Some("7")));
    assert_eq!(first.body, "{\"error\":1}");
    let second = post(&endpoint, &request("x", json!({}))).await;
    assert_eq!((second.status, second.retry_after, second.body.as_str()), (503, None, ""));
}

#[tokio::test]
async fn a_huge_body_is_well_formed() {
    const BYTES: usize = 3 * 1024 * 1024 + 5;
    for stream in [false, true] {
        let endpoint = FakeEndpoint::start(Behaviour::script([FakeReply::HugeBody(BYTES)])).unwrap();
        let exchange = post(&endpoint, &request("x", json!({"stream": stream}))).await;
        assert_eq!(exchange.ended, Ended::Whole);
        assert_eq!(exchange.body.matches(&"x".repeat(BYTES)).count(), 1);
        assert!(summary(&exchange).contains(", stop, 1+1 tokens"), "the one word of the text");
    }
}

#[tokio::test]
async fn limits_cut_the_text() {
    async fn check(extra: Value, expected: &str) {
        let endpoint = FakeEndpoint::start(Behaviour::text("one two three")).unwrap();
        assert_eq!(summary(&post(&endpoint, &request("x", extra)).await), expected);
    }
    check(json!({"max_tokens": 3}), r#"200 Whole: "one two three", stop, 1+3 tokens"#).await;
    check(json!({"max_tokens": 2}), r#"200 Whole: "one two", length, 1+2 tokens"#).await;
    check(json!({"max_tokens": 9, "max_completion_tokens": 1}), r#"200 Whole: "one", length, 1+1 tokens"#).await;
    check(json!({"max_tokens": null}), r#"200 Whole: "one two three", stop, 1+3 tokens"#).await;
}

#[tokio::test]
async fn a_stream_counts_tokens_only_if_asked() {
    let endpoint = FakeEndpoint::start(Behaviour::text("one")).unwrap();
    for (options, expected) in [
        (json!(null), "no tokens"),
        (json!({"include_usage": false}), "no tokens"),
        (json!({"include_usage": true}), "1+1 tokens"),
    ] {
        let body = request("x", json!({"stream": true, "stream_options": options}));
        let expected = format!("200 Whole: \"one\", stop, {expected}, done");
        assert_eq!(summary(&post(&endpoint, &body).await), expected);
    }
}

#[tokio::test]
async fn a_stream_split_anywhere_is_the_same_stream() {
    let stream = |behaviour: Behaviour| async {
        let endpoint = FakeEndpoint::start(behaviour).unwrap();
        post(&endpoint, &request("x", json!({"stream": true}))).await.body
    };
    let whole = stream(Behaviour::text("über alles")).await;
    for bytes in [1, 7, 100_000] {
        assert_eq!(stream(Behaviour::text("über alles").split_bytes(bytes)).await, whole);
    }
    assert_eq!(stream(Behaviour::text("über alles").per_token_ms(1)).await, whole);
}
