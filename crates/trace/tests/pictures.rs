//! The picture and the page: what they contain, and that nothing untrusted becomes markup.

use lemon_trace::export::{html::html, svg::svg};
use lemon_trace::{EventKind, Trace, sample};
use proptest::prelude::*;

const ATTACKS: [&str; 7] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style></pre><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "]]><!--</svg><svg onload=alert(1)>",
    "&lt;script&gt;javascript:alert(1)&#x3c;",
];

/// Puts a text everywhere a stranger's text can be.
fn with(text: &str) -> Trace {
    let mut trace = sample::credited(sample::eight());
    let header = &mut trace.header;
    for field in [&mut header.run_id, &mut header.task_id, &mut header.question, &mut header.workers] {
        *field = text.into();
    }
    for event in &mut trace.events {
        if event.agent == "refine" {
            event.agent = text.into();
        }
        match &mut event.kind {
            EventKind::Decision { by, model, text: spec, .. } => {
                (*by, *model, *spec) = (text.into(), Some(text.into()), text.into());
            }
            EventKind::Rejection { diagnostics, .. } => diagnostics.iter_mut().for_each(|fault| {
                (fault.message, fault.hint) = (text.into(), Some(text.into()));
            }),
            EventKind::Spawn { to, base, role, capacity, after, .. } => {
                for field in [base, role, capacity].into_iter().chain(after).chain((to == "refine").then_some(to)) {
                    *field = text.into();
                }
            }
            EventKind::Delegate { duty, .. } => *duty = text.into(),
            EventKind::Message { content, from, .. } => (*content, *from) = (text.into(), text.into()),
            EventKind::Return { reply, answer, failure, model, .. } => {
                for field in [reply, answer, model] {
                    *field = Some(text.into());
                }
                failure.iter_mut().for_each(|failure| failure.message = text.into());
            }
            EventKind::Retry { failure, .. } => failure.message = text.into(),
            EventKind::Aggregate { chosen, answer, candidates, .. } => {
                (*chosen, *answer) = (Some(text.into()), Some(text.into()));
                candidates.iter_mut().for_each(|candidate| candidate.answer = text.into());
            }
            EventKind::Stop { answer, .. } => *answer = Some(text.into()),
            EventKind::Score { rewards, .. } => *rewards = [(text.into(), 0.5)].into(),
            EventKind::Credit { unit, target, edit, .. } => {
                (*target, *edit) = (target.replace("refine", text), Some(text.into()));
                if unit == "turn" {
                    *unit = text.into();
                }
            }
            _ => {}
        }
    }
    trace
}

/// The names of all tags and of their attributes, in order: the markup without any of its texts. Reads quotes as a
/// browser does.
fn skeleton(markup: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = markup;
    while let Some((_, after)) = rest.split_once('<') {
        let mut quote = None;
        let mut tag = String::new();
        let mut end = after.len();
        for (place, char) in after.char_indices() {
            match (quote, char) {
                (None, '>') => {
                    end = place + 1;
                    break;
                }
                (None, '"' | '\'') => quote = Some(char),
                (Some(open), _) if open == char => quote = None,
                (None, _) => tag.push(char),
                (Some(_), _) => {}
            }
        }
        names.push(tag);
        rest = &after[end..];
    }
    names
}

/// A text makes the same markup as a plain one with the same words: some metrics exist only where words are enough.
fn check_harmless(text: &str) {
    let (plain, attacked) = (with(&text.replace(|char: char| !char.is_whitespace(), "x")), with(text));
    assert_eq!(skeleton(&svg(&plain)), skeleton(&svg(&attacked)), "{text}");
    assert_eq!(skeleton(&html(&plain)), skeleton(&html(&attacked)), "{text}");
}

#[test]
fn attacks_stay_text() {
    for attack in ATTACKS {
        check_harmless(attack);
        let page = html(&with(attack));
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("</script").count(), 1);
        assert!(page.len() > 10_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_never_become_markup(text in "[<>\"'&=/a-z \\-!\u{0}\u{7f}]{1,40}") {
        check_harmless(&text);
    }

    #[test]
    fn any_trace_can_be_drawn(seed: u64, credit: bool) {
        let trace = sample::random(seed);
        let trace = if credit { sample::credited(trace) } else { trace };
        let (picture, page) = (svg(&trace), html(&trace));
        for agent in trace.summary().agents {
            let marker = format!("data-agent=\"{}\"", agent.id);
            prop_assert_eq!(picture.matches(&marker).count(), 1);
            prop_assert!(page.contains(&marker));
        }
        prop_assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}

#[test]
fn loads_nothing_from_elsewhere() {
    for trace in [sample::three(), sample::eight(), sample::credited(sample::forty())] {
        let page = html(&trace).replace("http://www.w3.org/2000/svg", "");
        for sign in ["http:", "https:", "//", "src=", "@import", "url("] {
            let rest = page.replace("url(#lemon-tip", "").replace("// ", "");
            assert!(!rest.contains(sign), "{sign}");
        }
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    assert_eq!(svg(&sample::forty()), svg(&sample::forty()));
    assert_eq!(html(&sample::forty()), html(&sample::forty()));
}

#[test]
fn a_small_picture() {
    let picture = svg(&sample::three());
    let (_, body) = picture.split_once("</style>").unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn a_small_picture_with_credit() {
    let picture = svg(&sample::credited(sample::three()));
    let (_, body) = picture.split_once("</style>").unwrap();
    insta::assert_snapshot!(body);
}

/// Colours only repeat what words say, and without credit nothing speaks of it.
#[test]
fn credit_on_the_page() {
    let page = html(&sample::credited(sample::three()));
    for part in ["<a href=\"#credit\">", "<section id=\"credit\">", "worth unmeasured", "worth above", "worth below"] {
        assert!(page.contains(part), "{part}");
    }
    let bars = page.matches("class=\"balance\"").count();
    let rows = page.matches("<td class=\"n worth ").count();
    let unmeasured = page.matches(">not measured</td>").count();
    assert!(bars > 5 && unmeasured > 2 && bars + unmeasured == rows, "{bars} bars, {unmeasured} of {rows}");
    let plain = html(&sample::three());
    assert!(!plain.contains("id=\"credit\"") && !plain.contains("not measured"));
}

/// Numbers that are none come from no profile, but a trace can say anything.
#[test]
fn absurd_credit_is_drawn_all_the_same() {
    for absurd in [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, -0.0] {
        let mut trace = sample::credited(sample::eight());
        for event in &mut trace.events {
            if let EventKind::Credit { effect, standard_error, .. } = &mut event.kind {
                (*effect, *standard_error) = (Some(absurd), Some(absurd));
            }
        }
        let (picture, page) = (svg(&trace), html(&trace));
        assert!(!picture.contains("NaN") && !page.contains("NaN%") && page.ends_with("</html>\n"));
    }
}

#[test]
fn absurd_times_are_drawn_all_the_same() {
    let mut trace = sample::eight();
    for event in &mut trace.events {
        event.t = f64::MAX;
        event.spend.seconds = -1.0;
    }
    assert!(html(&trace).ends_with("</html>\n"));
}
