//! What goes over the wire for each reply: status, headers, bytes and pauses. Pure; nothing is sent here.

use crate::behaviour::FAKE_TEXT;
use crate::{Behaviour, ChatRequest, FakeReply};
use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const HTML: &str = "text/html; charset=utf-8";

/// The answer to one request, after the endpoint's latency.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// None, ever; the connection stays open.
    Never,
    /// This one.
    Http(Http),
}

/// An HTTP response, its body step by step.
#[derive(Debug, PartialEq)]
pub(crate) struct Http {
    /// What it takes on top of the latency until the head is sent.
    pub(crate) delay: Duration,
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// The `Content-Length` that is claimed, where it is not simply that of the bytes sent.
    pub(crate) content_length: Option<usize>,
    pub(crate) retry_after: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// One step of sending a body. The body ends in good order after the last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Send(Bytes),
    /// A pause, and what was sent so far is flushed before it.
    Wait(Duration),
    /// Nothing more, ever.
    Hang,
    /// The connection closes.
    Close,
}

/// What to send for a reply.
pub(crate) fn answer(reply: FakeReply, request: &ChatRequest, behaviour: &Behaviour) -> Answer {
    let body_type = if request.stream { EVENTS } else { JSON };
    let whole = |completion: Completion| completion.whole(request, behaviour.per_token);
    let half = |last| Completion::text(FAKE_TEXT, request).half(request, behaviour.per_token, last);
    let mut http = match reply {
        FakeReply::Hang => return Answer::Never,
        FakeReply::DropConnection => Http::new(200, JSON, vec![Step::Close]),
        FakeReply::Status { code, retry_after, body } => Http { retry_after, ..Http::of(code, JSON, body) },
        FakeReply::HtmlError(code) => Http::of(code, HTML, format!("<html><body><h1>{code} fake</h1></body></html>\n")),
        FakeReply::Garbage => Http::of(200, body_type, "This is no JSON.\n"),
        FakeReply::GarbageChunk => Completion::text(FAKE_TEXT, request).broken(request),
        FakeReply::HugeBody(bytes) => huge(bytes, request),
        FakeReply::Flood(times) => flood(times, request),
        FakeReply::Pieces(pieces) => {
            let deltas = pieces.iter().map(|piece| json!({"content": piece})).collect();
            whole(Completion { deltas, ..Completion::text(&pieces.concat(), request) })
        }
        FakeReply::ByModel(text, model) => {
            let request = ChatRequest { model, ..request.clone() };
            Completion::text(&text, &request).whole(&request, behaviour.per_token)
        }
        FakeReply::CutAt { text, bytes, close } => {
            cut_at(&Completion::text(&text, request).body(request), bytes, close, body_type)
        }
        FakeReply::HangMidStream => half(Some(Step::Hang)),
        FakeReply::DropMidStream => half(Some(Step::Close)),
        FakeReply::CutBody => half(None),
        FakeReply::Text(text) => whole(Completion::text(&text, request)),
        FakeReply::Empty => whole(Completion::text("", request)),
        FakeReply::Truncated(text) => whole(Completion { finish: "length", ..Completion::text(&text, request) }),
        FakeReply::NoUsage(text) => whole(Completion { usage: None, ..Completion::text(&text, request) }),
        FakeReply::WrongUsage(text, usage) => {
            whole(Completion { usage: Some(usage), ..Completion::text(&text, request) })
        }
        FakeReply::NoChoices => whole(Completion { choice: false, ..Completion::text("", request) }),
        FakeReply::NullContent => {
            whole(Completion { deltas: vec![json!({"content": null})], ..Completion::text("", request) })
        }
        FakeReply::ToolCalls(text, calls) => whole(Completion::calls(&text, &calls, request)),
        FakeReply::ToolCallsInsteadOfText => whole(Completion::tool_call(request)),
    };
    if let (true, Some(bytes)) = (request.stream, behaviour.split_bytes) {
        http.steps = split(http.steps, bytes);
    }
    Answer::Http(http)
}

/// A refusal in the form of an OpenAI error.
pub(crate) fn refusal(status: u16, code: Option<&str>, param: Option<&str>, message: &str) -> Http {
    let error = json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Http::of(status, JSON, json!({"error": error}).to_string())
}

/// The list of models.
pub(crate) fn models(names: &[String], owned_by: &str) -> Http {
    let model = |name| json!({"id": name, "object": "model", "created": 0, "owned_by": owned_by});
    let data: Vec<Value> = names.iter().map(model).collect();
    Http::of(200, JSON, json!({"object": "list", "data": data}).to_string())
}

impl Http {
    fn new(status: u16, content_type: &'static str, steps: Vec<Step>) -> Self {
        Http { delay: Duration::ZERO, status, content_type, content_length: None, retry_after: None, steps }
    }

    fn of(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Http::new(status, content_type, vec![send(body.into())])
    }
}

/// A completion before it takes the form of one body or of a stream.
struct Completion {
    /// What a stream sends one after another, after the role; a whole message is their sum.
    deltas: Vec<Value>,
    /// The words among them.
    tokens: usize,
    finish: &'static str,
    usage: Option<Value>,
    /// `false`: the list of choices is empty.
    choice: bool,
}

impl Completion {
    fn text(text: &str, request: &ChatRequest) -> Self {
        let mut words = words(text);
        let limit = request.limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let finish = if words.len() > limit { "length" } else { "stop" };
        words.truncate(limit);
        let tokens = words.iter().filter(|word| !word.trim().is_empty()).count();
        let deltas = words.into_iter().map(|word| json!({"content": word})).collect();
        Completion { deltas, tokens, finish, usage: Some(usage(request.prompt_tokens(), tokens)), choice: true }
    }

    fn tool_call(request: &ChatRequest) -> Self {
        let function = json!({"name": "never_offered", "arguments": "{}"});
        let call = json!({"index": 0, "id": "call_fake", "type": "function", "function": function});
        let delta = json!({"content": null, "tool_calls": [call]});
        Completion { deltas: vec![delta], finish: "tool_calls", ..Completion::text("", request) }
    }

    /// A text and calls: in a stream the name of each first, and its arguments in pieces of some characters, the calls in turn.
    fn calls(text: &str, calls: &[(String, String)], request: &ChatRequest) -> Self {
        const PIECE: usize = 7;
        let mut completion = Completion { finish: "tool_calls", ..Completion::text(text, request) };
        let begin = |(at, (name, arguments)): (usize, &(String, String))| {
            let arguments = if request.stream { "" } else { arguments };
            let function = json!({"name": name, "arguments": arguments});
            json!({"index": at, "id": format!("call_{}_{at}", request.number), "type": "function", "function": function})
        };
        let begun: Vec<Value> = calls.iter().enumerate().map(begin).collect();
        completion.deltas.push(json!({"tool_calls": begun}));
        if request.stream {
            let pieces = |(at, (_, arguments)): (usize, &(String, String))| {
                let letters: Vec<char> = arguments.chars().collect();
                let pieces = letters.chunks(PIECE).map(|piece| piece.iter().collect::<String>()).enumerate();
                pieces.map(|(number, piece)| (number, at, piece)).collect::<Vec<_>>()
            };
            let mut pieces: Vec<(usize, usize, String)> = calls.iter().enumerate().flat_map(pieces).collect();
            pieces.sort();
            let delta = |(_, at, piece)| json!({"tool_calls": [{"index": at, "function": {"arguments": piece}}]});
            completion.deltas.extend(pieces.into_iter().map(delta));
        }
        completion.tokens += calls.len();
        completion.usage = Some(usage(request.prompt_tokens(), completion.tokens));
        completion
    }

    /// All of it, in good order.
    fn whole(self, request: &ChatRequest, per_token: Duration) -> Http {
        if request.stream {
            return Http::new(200, EVENTS, paced(self.events(request), per_token));
        }
        let delay = per_token.saturating_mul(u32::try_from(self.tokens).unwrap_or(u32::MAX));
        Http { delay, ..Http::of(200, JSON, self.json(request)) }
    }

    /// All of it, as one text.
    fn body(self, request: &ChatRequest) -> String {
        if request.stream { self.events(request).concat() } else { self.json(request) }
    }

    /// The first half of it, then `last`; without one a stream ends in good order, and a body too early.
    fn half(self, request: &ChatRequest, per_token: Duration, last: Option<Step>) -> Http {
        if request.stream {
            let mut events = self.events(request);
            events.truncate(events.len() / 2);
            let mut steps = paced(events, per_token);
            steps.extend(last.map(flushed).into_iter().flatten());
            return Http::new(200, EVENTS, steps);
        }
        let mut body = self.json(request);
        let content_length = Some(body.len());
        body.truncate(body.floor_char_boundary(body.len() / 2));
        let mut steps = vec![send(body)];
        steps.extend(flushed(last.unwrap_or(Step::Close)));
        Http { content_length, ..Http::new(200, JSON, steps) }
    }

    /// All of it, with broken JSON in its middle.
    fn broken(self, request: &ChatRequest) -> Http {
        const BROKEN: &str = "{\"id\":\"chatcmpl-fake\",\"choices\":[{\"delta\":{\"cont";
        if !request.stream {
            return Http::of(200, JSON, BROKEN);
        }
        let mut events = self.events(request);
        events.insert(events.len() / 2, event(BROKEN));
        Http::new(200, EVENTS, paced(events, Duration::ZERO))
    }

    /// The message before its first word.
    fn opening(&self) -> Value {
        let null = self.deltas.iter().any(|delta| delta["content"].is_null());
        json!({"role": "assistant", "content": if null { Value::Null } else { json!("") }})
    }

    /// The body outside streams.
    fn json(self, request: &ChatRequest) -> String {
        let mut message = self.opening();
        // Assigning by name cannot fail: `message` is an object.
        for (name, value) in self.deltas.iter().filter_map(Value::as_object).flatten() {
            match (message.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                _ => message[name] = value.clone(),
            }
        }
        let choice = Choice { message: Some(&message), finish_reason: Some(self.finish), ..Choice::default() };
        let choices = if self.choice { &[choice][..] } else { &[] };
        Envelope { object: "chat.completion", choices, usage: self.usage.as_ref(), ..Envelope::new(request) }.to_json()
    }

    /// The events of a stream: role, text, finish reason, token counts if they were asked for, end.
    fn events(self, request: &ChatRequest) -> Vec<String> {
        let envelope = Envelope::new(request);
        let chunk = |delta: &Value, finish_reason| {
            let choice = Choice { delta: Some(delta), finish_reason, ..Choice::default() };
            let choices = if self.choice { &[choice][..] } else { &[] };
            event(&Envelope { choices, ..envelope.clone() }.to_json())
        };
        let mut events = vec![chunk(&self.opening(), None)];
        events.extend(self.deltas.iter().map(|delta| chunk(delta, None)));
        events.push(chunk(&json!({}), Some(self.finish)));
        if request.include_usage && self.usage.is_some() {
            events.push(event(&Envelope { usage: self.usage.as_ref(), ..envelope.clone() }.to_json()));
        }
        events.push(event("[DONE]"));
        events
    }
}

/// What a whole reply and every chunk of a stream have in common.
#[derive(Clone, Serialize)]
struct Envelope<'a> {
    id: Arc<str>,
    object: &'static str,
    created: u32,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Value>,
}

#[derive(Default, Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a Value>,
    logprobs: (),
    finish_reason: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// A chunk without choices.
    fn new(request: &'a ChatRequest) -> Self {
        Envelope {
            id: format!("chatcmpl-fake-{}", request.number).into(),
            object: "chat.completion.chunk",
            created: 0,
            model: &request.model,
            system_fingerprint: "lemon-fakes",
            choices: &[],
            usage: None,
        }
    }

    fn to_json(&self) -> String {
        // Text, numbers and JSON values always have a form in JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn usage(prompt: usize, completion: usize) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn send(text: String) -> Step {
    Step::Send(Bytes::from(text))
}

/// The step, after what was sent before it has left.
fn flushed(step: Step) -> [Step; 2] {
    [Step::Wait(Duration::ZERO), step]
}

/// One step for all events, unless there are pauses between them.
fn paced(events: Vec<String>, per_token: Duration) -> Vec<Step> {
    if per_token.is_zero() {
        return vec![send(events.concat())];
    }
    events.into_iter().flat_map(|event| [send(event), Step::Wait(per_token)]).collect()
}

/// A well-formed reply whose text is this long. Its blocks share one buffer, so the fake itself stays small.
fn huge(bytes: usize, request: &ChatRequest) -> Http {
    const MARK: &str = "HUGE";
    let content_type = if request.stream { EVENTS } else { JSON };
    let body = Completion::text(MARK, request).body(request);
    let (head, tail) = body.split_once(MARK).unwrap_or((&body, ""));
    let block = Bytes::from(vec![b'x'; bytes.min(64 * 1024)]);
    let mut steps = vec![send(head.to_owned())];
    let mut left = bytes;
    while left > 0 {
        let piece = block.slice(..left.min(block.len()));
        left -= piece.len();
        steps.push(Step::Send(piece));
    }
    steps.push(send(tail.to_owned()));
    Http::new(200, content_type, steps)
}

/// A well-formed reply of so many times forty words, with an event for each forty where it is a stream. Many events share
/// one buffer.
fn flood(times: usize, request: &ChatRequest) -> Http {
    const TOGETHER: usize = 64;
    const FORTY: usize = 40;
    let text = "word ".repeat(FORTY);
    if !request.stream {
        return huge(times.saturating_mul(text.len()), request);
    }
    let opening = Completion::text("", request).events(request);
    let (head, tail) = opening.split_first().map(|(head, tail)| (head.clone(), tail.concat())).unwrap_or_default();
    let deltas = vec![json!({"content": text})];
    let forty = Completion { deltas, ..Completion::text("", request) };
    let event = forty.events(request).get(1).cloned().unwrap_or_default();
    let block = Bytes::from(event.repeat(TOGETHER));
    let mut steps = vec![send(head)];
    steps.extend(std::iter::repeat_n(Step::Send(block), times / TOGETHER));
    steps.push(send(event.repeat(times % TOGETHER)));
    steps.push(send(tail));
    Http::new(200, EVENTS, steps)
}

/// The first bytes of a body, and then its end in good order or the end of the connection.
fn cut_at(body: &str, bytes: usize, close: bool, content_type: &'static str) -> Http {
    let sent = Bytes::copy_from_slice(body.as_bytes().get(..bytes).unwrap_or(body.as_bytes()));
    let mut steps = vec![Step::Send(sent), Step::Wait(Duration::ZERO)];
    if close {
        steps.push(Step::Close);
    }
    Http::new(200, content_type, steps)
}

/// The steps with every sending split into pieces of this size, flushed one by one.
fn split(steps: Vec<Step>, bytes: usize) -> Vec<Step> {
    let pieces = |step: Step| match step {
        Step::Send(data) => {
            let starts = (0..data.len()).step_by(bytes.max(1));
            let piece = |start: usize| data.slice(start..data.len().min(start.saturating_add(bytes.max(1))));
            starts.flat_map(|start| [Step::Send(piece(start)), Step::Wait(Duration::ZERO)]).collect()
        }
        other => vec![other],
    };
    steps.into_iter().flat_map(pieces).collect()
}

/// Cuts a text at the end of every word but the last: joined, the pieces are the text.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let blank = rest.len() - rest.trim_start().len();
        // Both ends below were found in `rest` itself, so they are boundaries of characters in it.
        let end = rest[blank..].find(char::is_whitespace).map_or(rest.len(), |length| blank + length);
        let end = if rest[end..].trim_start().is_empty() { rest.len() } else { end };
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(extra: Value) -> ChatRequest {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "two words"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(body).unwrap()
    }

    fn sent(steps: &[Step]) -> Vec<u8> {
        let data = |step: &Step| if let Step::Send(data) = step { data.to_vec() } else { Vec::new() };
        steps.iter().flat_map(data).collect()
    }

    #[test]
    fn a_word_takes_the_blanks_before_it() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words(text), expected, "{text:?}");
        check("", &[]);
        check(" \n", &[" \n"]);
        check("one", &["one"]);
        check(" one  two\n", &[" one", "  two\n"]);
        check("é\u{2003}ü", &["é", "\u{2003}ü"]);
    }

    #[test]
    fn pauses_stand_between_the_words_of_a_stream_and_before_a_whole_reply() {
        let behaviour = Behaviour::default().per_token_ms(5);
        let waits = |stream: bool| {
            let reply = FakeReply::Text("one two three".to_owned());
            let Answer::Http(http) = answer(reply, &request(json!({"stream": stream})), &behaviour) else { panic!() };
            let wait = |step: &Step| if let Step::Wait(time) = step { Some(time.as_millis()) } else { None };
            (http.delay.as_millis(), http.steps.iter().filter_map(wait).collect::<Vec<_>>())
        };
        assert_eq!(waits(false), (15, vec![]));
        assert_eq!(waits(true), (0, vec![5; 6]), "role, three words, finish, end");
    }

    proptest! {
        #[test]
        fn words_joined_are_the_text(text in "[a-zé \\n\\t]{0,40}") {
            prop_assert_eq!(words(&text).concat(), text.clone());
            let counted = words(&text).iter().filter(|word| !word.trim().is_empty()).count();
            prop_assert_eq!(counted, text.split_whitespace().count());
        }

        #[test]
        fn a_reply_never_has_more_words_than_its_limit(text in "[a-z ]{0,40}", limit in 1_u64..8, stream: bool) {
            let request = request(json!({"max_tokens": limit, "stream": stream}));
            let completion = Completion::text(&text, &request);
            let all = text.split_whitespace().count();
            prop_assert_eq!(completion.tokens as u64, limit.min(all as u64));
            prop_assert_eq!(completion.finish, if all as u64 > limit { "length" } else { "stop" });
        }

        #[test]
        fn splitting_changes_no_byte(text in ".{0,40}", bytes in 0_usize..9) {
            let pieces = split(vec![send(text.clone()), Step::Close], bytes);
            prop_assert_eq!(sent(&pieces), text.into_bytes());
            prop_assert_eq!(pieces.last(), Some(&Step::Close));
            let short = |step: &Step| !matches!(step, Step::Send(data) if data.len() > bytes.max(1));
            prop_assert!(pieces.iter().all(short));
        }
    }
}
