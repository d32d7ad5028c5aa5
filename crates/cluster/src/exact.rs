//! Numbers of a trace, bit by bit. Text cannot carry them: the JSON parser rounds the last bit of some.

use lemon_trace::{Event, EventKind};

/// The bits of the numbers of these events, where their JSON would read back as something else.
pub(crate) fn bits(events: &mut [Event], json: &[String]) -> Option<Vec<u64>> {
    let same = |(event, json): (&Event, &String)| serde_json::from_str::<Event>(json).is_ok_and(|read| read == *event);
    if events.iter().zip(json).all(same) {
        return None;
    }
    let mut bits = Vec::new();
    events.iter_mut().for_each(|event| visit(event, &mut |number| bits.push(number.to_bits())));
    Some(bits)
}

/// Puts the numbers back. What does not fit is left as it was read.
pub(crate) fn restore(events: &mut [Event], bits: &[u64]) {
    let mut bits = bits.iter();
    let mut put = |number: &mut f64| {
        if let Some(bits) = bits.next() {
            *number = f64::from_bits(*bits);
        }
    };
    events.iter_mut().for_each(|event| visit(event, &mut put));
}

/// Every number of an event that a run records.
fn visit(event: &mut Event, number: &mut impl FnMut(&mut f64)) {
    number(&mut event.t);
    number(&mut event.spend.usd);
    number(&mut event.spend.seconds);
    match &mut event.kind {
        EventKind::Return { confidence, saved, .. } => {
            confidence.iter_mut().for_each(&mut *number);
            if let Some(saved) = saved {
                number(&mut saved.usd);
                number(&mut saved.seconds);
            }
        }
        EventKind::Budget { needed, left, .. } => {
            number(needed);
            number(left);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::read_trace;
    use crate::wire::DoneHead;
    use lemon_trace::{AgentStatus, Header, Spend, VERSION};
    use proptest::prelude::*;

    fn event(id: u32, numbers: [f64; 4]) -> Event {
        let [t, usd, seconds, confidence] = numbers;
        let spend = Spend { usd, seconds, ..Spend::default() };
        let kind = EventKind::Return {
            status: AgentStatus::Done,
            reply: Some("line one\nline two".to_owned()),
            answer: None,
            failure: None,
            model: None,
            confidence: Some(confidence),
            truncated: false,
            attempts: 1,
            reused: false,
            saved: Some(spend),
        };
        Event { id, t, agent: "a".to_owned(), kind, spend, edges: Vec::new() }
    }

    proptest! {
        /// Every number of a trace arrives with every bit.
        #[test]
        fn numbers_arrive_bit_by_bit(numbers in prop::collection::vec(prop::array::uniform4(0.0f64..1e9), 1..5)) {
            let mut events: Vec<Event> = numbers.iter().enumerate().map(|(at, it)| event(at as u32, *it)).collect();
            let sent = events.clone();
            let header = Header {
                version: VERSION,
                run_id: "r".to_owned(),
                task_id: "t".to_owned(),
                question: "q".to_owned(),
                started_at_ms: 1,
                seed: 2,
                workers: "sim".to_owned(),
            };
            let lines: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
            let bits = bits(&mut events, &lines);
            let head = DoneHead { job: "j".to_owned(), header, events: lines.len(), graded: None, bits };
            let body = format!("{}\n{}", serde_json::to_string(&head).unwrap(), lines.join("\n"));
            let read = read_trace(body.as_bytes()).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&read.trace.events, &sent);
            prop_assert_eq!(read.events, lines);
        }
    }

    #[test]
    fn a_result_that_is_cut_off_is_refused() {
        assert!(read_trace(b"").err().unwrap().starts_with("its head"));
        let head = r#"{"job":"j","header":{"version":1,"run_id":"r","task_id":"t","question":"q","started_at_ms":1,"seed":2,"workers":"sim"},"events":2,"graded":null,"bits":null}"#;
        assert_eq!(read_trace(head.as_bytes()).err().unwrap(), "expected 2 events, found 0");
        let unknown = head.replace("\"events\":2", "\"events\":0,\"more\":1");
        assert!(read_trace(unknown.as_bytes()).err().unwrap().contains("unknown field `more`"));
    }
}
