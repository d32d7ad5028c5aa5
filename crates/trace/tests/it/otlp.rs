//! OpenTelemetry spans.

use lemon_trace::export::otlp::{otlp, otlp_json, otlp_protobuf};
use lemon_trace::{AgentStatus, EventKind, StopReason, Trace, sample};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message;
use std::collections::{HashMap, HashSet};

fn spans(trace: &Trace) -> Vec<Span> {
    otlp(trace).resource_spans.remove(0).scope_spans.remove(0).spans
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()
}

fn tokens(span: &Span) -> Option<u64> {
    let number = |key| match attribute(span, key) {
        Some(Value::IntValue(n)) => Some(*n as u64),
        _ => None,
    };
    Some(number("gen_ai.usage.input_tokens")? + number("gen_ai.usage.output_tokens")?)
}

/// The spans as an indented tree with their times, links and faults.
fn tree(trace: &Trace) -> String {
    let spans = spans(trace);
    let names: HashMap<&[u8], &str> = spans.iter().map(|span| (&span.span_id[..], span.name.as_str())).collect();
    let mut text = String::new();
    write_children(&mut text, &spans, &names, &[], 0, trace.header.started_at_ms * 1_000_000);
    text
}

fn write_children(
    text: &mut String,
    spans: &[Span],
    names: &HashMap<&[u8], &str>,
    parent: &[u8],
    depth: usize,
    t0: u64,
) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        let seconds = |nanos: u64| (nanos - t0) as f64 / 1e9;
        let (start, end) = (seconds(span.start_time_unix_nano), seconds(span.end_time_unix_nano));
        *text += &format!("{}{} {start:.2}–{end:.2}", "  ".repeat(depth), span.name);
        *text += &tokens(span).map_or_else(String::new, |tokens| format!(" {tokens} tokens"));
        for link in &span.links {
            *text += &format!(" ← {}", names[&link.span_id[..]]);
        }
        if let Some(Value::StringValue(kind)) = attribute(span, "error.type") {
            *text += &format!(" !{kind}");
        }
        text.push('\n');
        write_children(text, spans, names, &span.span_id, depth + 1, t0);
    }
}

#[test]
fn the_tree_of_spans() {
    insta::assert_snapshot!(tree(&sample::eight()));
}

#[test]
fn json_is_as_otlp_says() {
    let mut trace = sample::three();
    trace.events.truncate(8);
    insta::assert_snapshot!(otlp_json(&trace));
}

/// An agent that was cut off, and ran again after the run was taken up: one span, both calls.
#[test]
fn a_resumed_agent() {
    let mut trace = sample::three();
    let delegate = trace.events.iter().position(|event| event.kind.name() == "delegate" && event.id > 1).unwrap();
    let asked = trace.events[delegate].clone();
    let mut again = vec![asked.clone(), trace.events[delegate + 1].clone(), asked.clone(), asked];
    if let EventKind::Return { status, attempts, reply, answer, .. } = &mut again[1].kind {
        (*status, *attempts, *reply, *answer) = (AgentStatus::Cancelled, 0, None, None);
    }
    again[2].kind = EventKind::Stop { reason: StopReason::Cancelled, answer: None };
    again[3].kind = EventKind::Resume { finished: 0, lost_tokens: 0 };
    trace.events.splice(delegate..delegate, again);
    trace.events.iter_mut().zip(1..).for_each(|(event, id)| event.id = id);
    let spans = spans(&trace);
    assert_eq!(spans.iter().filter(|span| span.name == "invoke_agent solve").count(), 1);
    assert_eq!(spans.iter().filter(|span| span.name == "chat qwen-7b").count(), 2 + 1);
    assert_eq!(spans.iter().filter_map(tokens).sum::<u64>(), trace.summary().tokens.total);
    let solve = trace.summary().agent("solve").cloned().unwrap();
    assert_eq!((solve.status, solve.attempts), (Some(AgentStatus::Done), 2));
}

/// Rewards are the run's, credit is the agents'; what was not measured is not there.
#[test]
fn rewards_and_credit() {
    let spans = spans(&sample::credited(sample::three()));
    assert_eq!(attribute(&spans[0], "lemon.reward.tokens"), Some(&Value::DoubleValue(0.418)));
    assert_eq!(attribute(&spans[0], "lemon.right"), Some(&Value::BoolValue(true)));
    let mut text = String::new();
    for span in &spans {
        for event in &span.events {
            let value = |key: &str| event.attributes.iter().find(|pair| pair.key == key)?.value.clone()?.value;
            let Some(Value::StringValue(target)) = value("lemon.target") else { panic!("{event:?}") };
            assert!(matches!(value("lemon.effect"), Some(Value::DoubleValue(_))), "{event:?}");
            assert_eq!(
                (event.time_unix_nano, value("lemon.pairs")),
                (span.end_time_unix_nano, Some(Value::IntValue(30)))
            );
            text += &format!("{}: {} {target}\n", span.name, event.name);
        }
    }
    insta::assert_snapshot!(text);
    assert!(self::spans(&sample::three()).iter().all(|span| span.events.is_empty()));
}

#[test]
fn names_the_service() {
    let request = otlp(&sample::three());
    let resource = request.resource_spans[0].resource.clone().unwrap();
    let service = resource.attributes.iter().find(|pair| pair.key == "service.name").unwrap();
    assert_eq!(service.value.clone().unwrap().value, Some(Value::StringValue("lemon".into())));
}

proptest! {
    #[test]
    fn both_encodings_read_back_equal(seed: u64, credit: bool) {
        let trace = sample::random(seed);
        let trace = if credit { sample::credited(trace) } else { trace };
        let request = otlp(&trace);
        prop_assert_eq!(&ExportTraceServiceRequest::decode(&otlp_protobuf(&trace)[..]).unwrap(), &request);
        let read: ExportTraceServiceRequest = serde_json::from_str(&otlp_json(&trace)).unwrap();
        prop_assert_eq!(&read, &request);
    }

    #[test]
    fn spans_are_well_formed(seed: u64) {
        let trace = sample::random(seed);
        let spans = spans(&trace);
        let ids: HashSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
        prop_assert_eq!(ids.len(), spans.len(), "ids are unique");
        for span in &spans {
            prop_assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            prop_assert!(span.span_id != [0; 8] && span.trace_id != [0; 16]);
            prop_assert_eq!(&span.trace_id, &spans[0].trace_id);
            prop_assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            prop_assert!(span.parent_span_id.is_empty() || ids.contains(&span.parent_span_id[..]));
            prop_assert!(span.links.iter().all(|link| ids.contains(&link.span_id[..])));
            prop_assert!(attribute(span, "gen_ai.operation.name").is_some());
            prop_assert_eq!(tokens(span).is_some(), span.name.starts_with("chat"));
            prop_assert_eq!(attribute(span, "error.type").is_some(), span.status.as_ref().is_some_and(|status| status.code == 2));
        }
        prop_assert_eq!(spans.iter().filter(|span| span.parent_span_id.is_empty()).count(), 1);
    }

    /// Summing over all spans counts every token once.
    #[test]
    fn tokens_are_counted_once(seed: u64) {
        let mut trace = sample::random(seed);
        // Of a cut trace, the failed attempts of an agent still running are there as well.
        trace.events.retain(|event| event.kind.name() != "stop");
        let sum: u64 = spans(&trace).iter().filter_map(tokens).sum();
        prop_assert_eq!(sum, trace.summary().tokens.total);
    }
}
